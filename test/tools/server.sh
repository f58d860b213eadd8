# shellcheck shell=bash
# A throwaway PostgreSQL with the extension; to be sourced.
#
# Nothing is installed into the system. PostgreSQL's programs find their libraries and their share directory relative
# to where they are themselves, so a private tree of copied programs and linked files, plus the extension, is an
# installation of its own, for root and for an ordinary user alike. The server never runs as root.
#
#   server_prepare          makes $WORK, builds the extension in a copy of the source, makes the private tree
#   server_start [SETTING]  initdb and start on a socket in $WORK; sets PGHOST, PGPORT, PGUSER, PGDATABASE
#   server_stop [MODE]
#   as_server COMMAND       runs COMMAND as the user that the server runs as
# Everything ends and goes with the shell, and so do the processes in COMPANIONS.

SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PGVERSION=${PGVERSION:-15}
WORK=
TREE=
BIN=
COMPANIONS=()

as_server() {
    if [ "$(id -u)" -eq 0 ]; then
        runuser -u postgres -- env "PATH=$PATH" "$@"
    else
        "$@"
    fi
}

server_cleanup() {
    local status=$?
    trap - EXIT INT TERM
    [ ${#COMPANIONS[@]} -eq 0 ] || kill "${COMPANIONS[@]}" 2>/dev/null || true
    if [ -n "$WORK" ]; then
        server_stop immediate
        if [ -n "${KEEP:-}" ] && [ "$status" -ne 0 ]; then
            echo "kept: $WORK" >&2
        else
            rm -rf "$WORK"
        fi
    fi
    exit "$status"
}

server_prepare() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/idempotency.XXXXXX")
    trap server_cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    chmod 755 "$WORK"
    TREE=$WORK/tree
    BIN=$TREE/lib/postgresql/$PGVERSION/bin

    # a copy, so that the working tree stays as it is and may be read-only
    mkdir "$WORK/source"
    tar -C "$SOURCE" --exclude=./.git --exclude=node_modules --exclude='*.o' --exclude='*.d' --exclude='*.so' -cf - . |
        tar -C "$WORK/source" --no-same-owner -xf -

    local system_lib=/usr/lib/postgresql/$PGVERSION system_share=/usr/share/postgresql/$PGVERSION
    if ! make -C "$WORK/source" -j"$(nproc)" "PG_CONFIG=$system_lib/bin/pg_config" \
        "EXTRA_CXXFLAGS=-Werror ${EXTRA_CXXFLAGS:-}" ${CXX:+"CXX=$CXX"} all >"$WORK/build.log" 2>&1; then
        cat "$WORK/build.log" >&2
        return 1
    fi

    mkdir -p "$BIN" "$TREE/lib/postgresql/$PGVERSION/lib" "$TREE/share/postgresql/$PGVERSION"
    cp "$system_lib"/bin/* "$BIN"
    cp -as "$system_lib/lib/." "$TREE/lib/postgresql/$PGVERSION/lib"
    cp -as "$system_share/." "$TREE/share/postgresql/$PGVERSION"
    cp "$WORK/source/idempotency.so" "$TREE/lib/postgresql/$PGVERSION/lib"
    cp "$WORK/source/idempotency.control" "$WORK"/source/sql/idempotency--*.sql \
        "$TREE/share/postgresql/$PGVERSION/extension"

    mkdir "$WORK/run"
    if [ "$(id -u)" -eq 0 ]; then
        chown postgres "$WORK/run"
    fi
    export PATH=$BIN:$PATH
}

server_start() {
    export PGHOST=$WORK/run PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
    unset PGSERVICE PGOPTIONS PGPASSWORD
    as_server initdb -D "$WORK/run/data" -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8 >"$WORK/initdb.log" 2>&1 ||
        { cat "$WORK/initdb.log" >&2; return 1; }
    {
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '$WORK/run'"
        echo "port = $PGPORT"
        printf '%s\n' "$@"
    } | as_server tee -a "$WORK/run/data/postgresql.conf" >/dev/null
    server_restart
}

server_restart() {
    as_server pg_ctl -D "$WORK/run/data" -l "$WORK/run/log" -w -s start || { cat "$WORK/run/log" >&2; return 1; }
}

server_stop() {
    if [ -f "$WORK/run/data/postmaster.pid" ]; then
        as_server pg_ctl -D "$WORK/run/data" -m "${1:-fast}" -w -s stop >/dev/null 2>&1 || true
    fi
}
