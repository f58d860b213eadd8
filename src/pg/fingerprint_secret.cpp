#include "pg/fingerprint_secret.hpp"

#include "pg/settings.hpp"

namespace idem::pg {

namespace {

// with room for "plain" and some empty lines
constexpr std::size_t max_file_size = core::max_secrets * (core::max_secret_size + 2) + 64;

struct Loaded {
    bool valid;
    std::size_t size;
    core::SecretList list; // in text
    char text[max_file_size];
};
static_assert(std::is_trivially_destructible_v<Loaded>);

Loaded loaded;

[[noreturn]] void refuse_file(const char *detail)
{
    ereport(
        ERROR,
        (errcode(ERRCODE_CONFIG_FILE_ERROR),
         errmsg("the file of \"idempotency.fingerprint_secret_file\" cannot be used"),
         errdetail("%s", detail),
         errhint("Mend the file and reload the configuration; requests wait for it, or their fingerprints "
                 "would be without the secret.")));
}

// As the server asks of its TLS key (be-secure-common.c): the owner's alone, or root's and at most readable by the group.
void require_private(FILE *file)
{
    struct stat state;
    if (fstat(fileno(file), &state) != 0) {
        refuse_file(psprintf("It cannot be examined: %m."));
    }
    if (!S_ISREG(state.st_mode)) {
        refuse_file("It is no regular file.");
    }
    if (state.st_uid != geteuid() && state.st_uid != 0) {
        refuse_file("It belongs neither to the user that the server runs as nor to root.");
    }
    const mode_t forbidden = state.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO;
    if ((state.st_mode & forbidden) != 0) {
        refuse_file("Others may read it: its permissions must be u=rw (0600) or less, or u=rw,g=r (0640) if "
                    "root owns it.");
    }
}

void parse()
{
    std::size_t line = 0;
    switch (core::parse_secrets({loaded.text, loaded.size}, loaded.list, line)) {
    case core::SecretFault::none:
        break;
    case core::SecretFault::no_secret:
        refuse_file("It has no secret.");
        break;
    case core::SecretFault::too_short:
    case core::SecretFault::too_long:
        refuse_file(psprintf("A secret has %zu to %zu bytes; the one in line %zu has not.",
                             core::min_secret_size, core::max_secret_size, line));
        break;
    case core::SecretFault::blank:
        refuse_file(psprintf("Line %zu has a blank: a secret has none, and there are no comments.", line));
        break;
    case core::SecretFault::too_many:
        refuse_file(psprintf("It has more than %zu secrets.", core::max_secrets));
        break;
    }
}

void load()
{
    forget_fingerprint_secrets();
    FILE *file = AllocateFile(settings.fingerprint_secret_file, PG_BINARY_R);
    if (file == nullptr) {
        refuse_file(psprintf("It cannot be opened: %m."));
    }
    require_private(file);
    loaded.size = fread(loaded.text, 1, sizeof(loaded.text), file);
    const bool whole = ferror(file) == 0 && loaded.size < sizeof(loaded.text);
    FreeFile(file);
    if (!whole) {
        refuse_file(psprintf("It cannot be read, or is larger than %zu bytes.", sizeof(loaded.text) - 1));
    }
    parse();
    loaded.valid = true;
}

} // namespace

const core::SecretList &fingerprint_secrets()
{
    if (settings.fingerprint_secret_file[0] == '\0') {
        loaded.list.count = 0;
    } else if (!loaded.valid) {
        load();
    }
    return loaded.list;
}

void forget_fingerprint_secrets()
{
    loaded.valid = false;
    loaded.list.count = 0;
    explicit_bzero(loaded.text, sizeof(loaded.text));
}

} // namespace idem::pg
