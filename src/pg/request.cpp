#include "pg/request.hpp"

#include "core/digest.hpp"
#include "core/fingerprint.hpp"
#include "pg/errors.hpp"
#include "pg/fingerprint_secret.hpp"
#include "pg/jsonb_document.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

void write_to_digest(void *digest, const char *data, std::size_t size)
{
    if (!static_cast<core::Sha256 *>(digest)->update(data, size)) {
        digest_failed("SHA-256");
    }
    CHECK_FOR_INTERRUPTS();
}

const char *pointer_fault(core::PointerError error)
{
    switch (error) {
    case core::PointerError::no_leading_slash:
        return "A JSON pointer starts with \"/\" (RFC 6901).";
    case core::PointerError::whole_document:
        return "The empty JSON pointer means the whole document, which can't be left out.";
    case core::PointerError::bad_escape:
        return "In a JSON pointer, \"~\" must be followed by \"0\" or \"1\" (RFC 6901).";
    case core::PointerError::too_many:
        return "It has more pointers than can be followed at once.";
    case core::PointerError::none:
        break;
    }
    return "";
}

[[noreturn]] void refuse_pointer(const char *detail)
{
    ereport(ERROR, (errcode(errcode_invalid_argument),
                    errmsg("argument \"ignore\" is not a list of JSON pointers"), errdetail("%s", detail),
                    errhint("Write a top-level member as '/name' and give at most %zu pointers.",
                            core::max_ignored)));
}

// The elements of both arrays of text.
ArrayType *joined(ArrayType *first, ArrayType *second)
{
    Datum values[core::max_ignored];
    int count = 0;
    for (ArrayType *array : {first, second}) {
        Datum *elements;
        int size;
        deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, nullptr, &size);
        for (int i = 0; i < size && count < static_cast<int>(core::max_ignored); i++) {
            values[count++] = elements[i];
        }
    }
    return construct_array(values, count, TEXTOID, -1, false, TYPALIGN_INT);
}

const std::string_view *find_secret(const StoredFingerprint &stored)
{
    const std::string_view *secret;
    if (!core::secret_of(fingerprint_secrets(), stored.bytes, secret)) {
        digest_failed("HMAC-SHA-256");
    }
    return secret;
}

// The secret of a stored fingerprint; null for one without a secret.
const std::string_view *secret_of(const KeyName &name, const StoredFingerprint &stored)
{
    if (stored.version == core::plain_fingerprint_version) {
        return nullptr;
    }
    if (stored.version != core::keyed_fingerprint_version) {
        ereport(
            ERROR,
            (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
             errmsg("the fingerprint of idempotency key \"%s\" of tenant \"%s\" has the unknown version %d",
                    cstring_of(name.key), cstring_of(name.tenant), stored.version),
             errdetail("A later version of the extension has stored it."),
             errhint("Install the library of that version.")));
    }
    const std::string_view *secret = find_secret(stored);
    if (secret == nullptr) {
        // a session that has read the file before the change may meet a row of one that has read it since
        forget_fingerprint_secrets();
        secret = find_secret(stored);
    }
    if (secret == nullptr) {
        ereport(ERROR,
                (errcode(ERRCODE_CONFIG_FILE_ERROR),
                 errmsg("the secret of the fingerprint of idempotency key \"%s\" of tenant \"%s\" is missing",
                        cstring_of(name.key), cstring_of(name.tenant)),
                 errdetail("Without it nobody can tell whether this is the same request."),
                 settings.fingerprint_secret_file[0] == '\0'
                     ? errhint("Set \"idempotency.fingerprint_secret_file\" again; with \"%s\" as its first "
                               "line, the secrets below only compare.",
                               core::plain_line.data())
                     : errhint("Add it to the file of \"idempotency.fingerprint_secret_file\", below the "
                               "secret in use, and reload the configuration.")));
    }
    return secret;
}

bool equal(const KeyName &name, const Fingerprint &fingerprint, const StoredFingerprint &stored,
           const std::string_view *secret)
{
    if (secret == nullptr) {
        return memcmp(fingerprint.bytes, stored.bytes, sizeof(stored.bytes)) == 0;
    }
    std::uint8_t keyed[core::digest_size];
    if (!core::keyed_fingerprint(*secret, fingerprint.bytes, utf8_of(name.tenant), name.key, keyed)) {
        digest_failed("HMAC-SHA-256");
    }
    return memcmp(keyed, stored.bytes, sizeof(stored.bytes)) == 0;
}

} // namespace

void digest_failed(const char *algorithm)
{
    ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute a %s digest", algorithm),
                    errdetail("OpenSSL reported a failure."),
                    errhint("Check that the OpenSSL configuration of the server permits %s.", algorithm)));
}

core::IgnoreList ignore_list_of(ArrayType *pointers)
{
    Datum *values;
    bool *nulls;
    int count;
    deconstruct_array(pointers, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &count);
    if (static_cast<std::size_t>(count) > core::max_ignored) {
        refuse_pointer(pointer_fault(core::PointerError::too_many));
    }

    core::Arena arena = current_context_arena();
    auto *parsed = static_cast<core::Pointer *>(palloc(Max(count, 1) * sizeof(core::Pointer)));
    for (int i = 0; i < count; i++) {
        if (nulls[i]) {
            refuse_pointer("An element of the array is null.");
        }
        const text *pointer = DatumGetTextPP(values[i]);
        const core::PointerError error = core::parse_pointer(utf8_of(bytes_of(pointer)), arena, parsed[i]);
        if (error != core::PointerError::none) {
            refuse_pointer(pointer_fault(error));
        }
    }
    return core::IgnoreList{parsed, static_cast<std::size_t>(count)};
}

IgnoredFields current_ignored_fields()
{
    IgnoredFields ignored;
    ignored.array = ignored_fields_as_array();
    // a setting may be parsed before the database, and so its encoding, is known
    ignored.list = GetDatabaseEncoding() == PG_UTF8 || pg_is_ascii(settings.ignored_fields)
                       ? ignored_fields_setting()
                       : ignore_list_of(ignored.array);
    return ignored;
}

IgnoredFields ignored_fields_with(const core::IgnoreList &more, ArrayType *more_array)
{
    IgnoredFields ignored = current_ignored_fields();
    if (more.count == 0) {
        return ignored;
    }

    const std::size_t count = ignored.list.count + more.count;
    auto *pointers = static_cast<core::Pointer *>(palloc(count * sizeof(core::Pointer)));
    memcpy(pointers, ignored.list.pointers, ignored.list.count * sizeof(core::Pointer));
    memcpy(pointers + ignored.list.count, more.pointers, more.count * sizeof(core::Pointer));

    ignored.array = joined(ignored_fields_setting_as_array(), more_array);
    ignored.list = core::IgnoreList{pointers, count};
    return ignored;
}

void write_canonical(Jsonb *body, const core::IgnoreList &ignored, core::Numbers numbers,
                     core::Writer &writer)
{
    core::Arena arena = current_context_arena();
    const core::CanonicalError error =
        core::canonicalize(JsonbDocument{body}, ignored, numbers, arena, writer);
    switch (error) {
    case core::CanonicalError::none:
        break;
    case core::CanonicalError::number_overflow:
        ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
                        errmsg("a number of the document is too large for the strict canonical form"),
                        errdetail("RFC 8785 knows only numbers that an IEEE 754 double can hold."),
                        errhint("Leave out strict => true: the lossless form has no such limit.")));
        break;
    case core::CanonicalError::invalid_utf8:
        ereport(ERROR, (errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
                        errmsg("a string of the document is not valid UTF-8"),
                        errhint("Give the bytes as raw_body instead.")));
        break;
    }
}

Fingerprint fingerprint_of(const Request &request, const core::IgnoreList &ignored)
{
    core::Sha256 digest;
    core::Writer writer{core::Sink{&digest, write_to_digest}};
    if (!digest.start()) {
        digest_failed("SHA-256");
    }
    core::write_request_line(request.method, request.path, writer);
    if (request.body != nullptr) {
        write_canonical(request.body, ignored, core::Numbers::lossless, writer);
    }
    writer.flush();
    if (request.raw_body != nullptr) {
        const std::string_view bytes = bytes_of(request.raw_body);
        write_to_digest(&digest, bytes.data(), bytes.size());
    }

    Fingerprint fingerprint;
    if (!digest.finish(fingerprint.bytes)) {
        digest_failed("SHA-256");
    }
    return fingerprint;
}

StoredFingerprint stored_fingerprint(const KeyName &name, const Fingerprint &fingerprint,
                                     ArrayType *ignored_fields)
{
    StoredFingerprint stored{};
    stored.ignored_fields = ignored_fields;
    const std::string_view *secret = core::secret_in_use(fingerprint_secrets());
    if (secret == nullptr) {
        stored.version = core::plain_fingerprint_version;
        memcpy(stored.bytes, fingerprint.bytes, sizeof(stored.bytes));
        return stored;
    }
    stored.version = core::keyed_fingerprint_version;
    if (!core::keyed_fingerprint(*secret, fingerprint.bytes, utf8_of(name.tenant), name.key, stored.bytes)) {
        digest_failed("HMAC-SHA-256");
    }
    return stored;
}

bool same_request(const KeyName &name, const Request &request, const Fingerprint &current,
                  const IgnoredFields &current_ignored, const StoredFingerprint &stored)
{
    const std::string_view *secret = secret_of(name, stored);
    if (equal(name, current, stored, secret)) {
        return true;
    }
    // The setting may have changed since: compare with what the stored fingerprint was made with.
    if (request.body == nullptr || (stored.ignored_fields == nullptr && current_ignored.array == nullptr)) {
        return false;
    }
    const core::IgnoreList ignored =
        stored.ignored_fields == nullptr ? built_in_ignore_list() : ignore_list_of(stored.ignored_fields);
    return equal(name, fingerprint_of(request, ignored), stored, secret);
}

std::uint64_t key_lock_hash(std::string_view tenant, std::string_view key)
{
    std::uint64_t hash = 0;
    if (!core::lock_hash(tenant, key, hash)) {
        digest_failed("SHA-256");
    }
    return hash;
}

} // namespace idem::pg
