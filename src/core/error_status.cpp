#include "core/error_status.hpp"

#include "core/status.hpp"

namespace idem::core {

namespace {

constexpr std::string_view raised_classes[] = {"40", "57", "2D", "ID"};

constexpr ErrorRule built_in_rules[] = {
    {{'2', '3', '5', '0', '2'}, 5, 400}, // not-null violation
    {{'2', '3', '5', '0', '3'}, 5, 409}, // foreign-key violation
    {{'2', '3', '5', '0', '5'}, 5, 409}, // unique violation
    {{'2', '3', '5', '1', '4'}, 5, 400}, // check violation
    {{'2', '3', 'P', '0', '1'}, 5, 409}, // exclusion violation
    {{'4', '2', '5', '0', '1'}, 5, 403}, // insufficient privilege
    {{'P', '0', '0', '0', '1'}, 5, 400}, // RAISE EXCEPTION
    {{'P', '0', '0', '0', '2'}, 5, 404}, // no data found
};

struct Phrase {
    int status;
    std::string_view text;
};

constexpr Phrase phrases[] = {
    {300, "Multiple Choices"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {407, "Proxy Authentication Required"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {428, "Precondition Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

constexpr bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// PTxyz: status xyz. 0 for anything else, a status that no error may have included.
int status_of_pt(std::string_view sqlstate)
{
    if (sqlstate[0] != 'P' || sqlstate[1] != 'T' || !is_digit(sqlstate[2]) || !is_digit(sqlstate[3]) ||
        !is_digit(sqlstate[4])) {
        return 0;
    }
    const int status = (sqlstate[2] - '0') * 100 + (sqlstate[3] - '0') * 10 + (sqlstate[4] - '0');
    return status >= min_error_status && status <= max_status ? status : 0;
}

std::string_view class_of(std::string_view sqlstate)
{
    return {sqlstate.data(), sqlstate_class_size};
}

int find_rule(std::string_view pattern, const ErrorRule *rules, std::size_t count)
{
    for (std::size_t i = 0; i < count; i++) {
        if (rules[i].pattern() == pattern) {
            return rules[i].status;
        }
    }
    return 0;
}

} // namespace

bool error_pattern_valid(std::string_view pattern)
{
    if (pattern.size() != sqlstate_size && pattern.size() != sqlstate_class_size) {
        return false;
    }
    for (const char c : pattern) {
        if (!is_digit(c) && (c < 'A' || c > 'Z')) {
            return false;
        }
    }
    return true;
}

bool always_raised(std::string_view sqlstate)
{
    for (const std::string_view raised : raised_classes) {
        if (class_of(sqlstate) == raised) {
            return true;
        }
    }
    return false;
}

int status_of_error(std::string_view sqlstate, const ErrorRules &rules)
{
    constexpr int internal_error = 500;
    const int candidates[] = {
        find_rule(sqlstate, rules.rules, rules.count),
        find_rule(class_of(sqlstate), rules.rules, rules.count),
        status_of_pt(sqlstate),
        find_rule(sqlstate, built_in_rules, sizeof(built_in_rules) / sizeof(built_in_rules[0])),
    };
    for (const int status : candidates) {
        if (status != 0) {
            return status;
        }
    }
    return internal_error;
}

bool speaks_to_client(std::string_view sqlstate)
{
    return sqlstate == "P0001" || status_of_pt(sqlstate) != 0;
}

std::string_view reason_phrase(int status)
{
    for (const Phrase &phrase : phrases) {
        if (phrase.status == status) {
            return phrase.text;
        }
    }
    return "Error";
}

std::string_view error_detail(int status)
{
    constexpr int not_found = 404;
    constexpr int forbidden = 403;
    constexpr int conflict = 409;
    if (status >= 500) {
        return "The request failed and changed nothing. It may be sent again with the same Idempotency-Key.";
    }
    switch (status) {
    case forbidden:
        return "The request is not permitted.";
    case not_found:
        return "What the request refers to does not exist.";
    case conflict:
        return "The request conflicts with what is stored.";
    default:
        return "The request was refused and changed nothing.";
    }
}

} // namespace idem::core
