/*
 * HTTP status codes (RFC 9110, section 15): which are an answer, and which tell the client to try again.
 */
#pragma once

namespace idem::core {

constexpr int min_status = 200; // a 1xx is no final answer
constexpr int max_status = 599;

constexpr bool status_valid(int status)
{
    return status >= min_status && status <= max_status;
}

// Server errors, Request Timeout, Too Early (RFC 8470), Too Many Requests (RFC 6585).
constexpr bool status_retryable(int status)
{
    return status >= 500 || status == 408 || status == 425 || status == 429;
}

// What may be answered otherwise once the client has shown who it is: never stored.
constexpr bool status_unstored(int status)
{
    return status == 401 || status == 403;
}

} // namespace idem::core
