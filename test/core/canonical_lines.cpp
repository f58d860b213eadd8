// Reads JSON documents, one a line, and writes their strict canonical text, one a line: for differential.mjs.
#include <iostream>

#include "json_document.hpp"

int main()
{
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << idem::test::canonical_text(line, idem::core::Numbers::strict) << '\n';
    }
    return std::cout.flush() ? 0 : 1;
}
