#include "stowage/core/print_format.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "stowage/core/array_text.h"

namespace stow {
namespace {

// Text as it stands, or a place for an array.
struct Piece {
  std::string text;  // or the specification
  bool is_place = false, is_numbered = false;
  size_t array = 0;
};

Result<std::vector<Piece>> parse(std::string_view format) {
  std::vector<Piece> pieces;
  const auto text = [&]() -> std::string& {
    if (pieces.empty() || pieces.back().is_place) pieces.emplace_back();
    return pieces.back().text;
  };
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      text() += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      text() += c;
      ++i;
      continue;
    }
    const size_t end = format.find_first_of("{}", i + 1);
    if (c == '}' || end == std::string_view::npos || format[end] == '{')
      return fail("the format '{}' has a brace without its partner; write {}{} for one", format, c,
                  c);
    const std::string_view inside = format.substr(i + 1, end - i - 1);
    const size_t colon = std::min(inside.find(':'), inside.size());
    const std::string_view number = inside.substr(0, colon);
    Piece place{.is_place = true};
    if (colon < inside.size()) place.text = inside.substr(colon + 1);
    if (number.empty()) {
      place.array = next++;
    } else {
      place.is_numbered = true;
      const char* const stop = number.data() + number.size();
      const auto [at, error] = std::from_chars(number.data(), stop, place.array);
      if (error != std::errc() || at != stop)
        return fail("expected the number of an array in the place '{{{}}}' of the format '{}'",
                    inside, format);
    }
    pieces.push_back(std::move(place));
    i = end;
  }
  return pieces;
}

}  // namespace

Result<void> check_print_format(std::string_view format, std::span<const DType> dtypes) {
  const Result<std::vector<Piece>> pieces = parse(format);
  if (!pieces) return pieces.failure();
  std::vector<bool> printed(dtypes.size(), false);
  bool numbered = false, counted = false;
  for (const Piece& piece : *pieces) {
    if (!piece.is_place) continue;
    (piece.is_numbered ? numbered : counted) = true;
    if (piece.array >= dtypes.size())
      return fail("the format '{}' has a place for array {}, {} given", format, piece.array,
                  dtypes.empty()       ? "none is"
                  : dtypes.size() == 1 ? "1 is"
                                       : fmt::format("{} are", dtypes.size()));
    printed[piece.array] = true;
    try {
      check_element_spec(dtypes[piece.array], piece.text);
    } catch (const fmt::format_error&) {
      return fail("'{{:{}}}' does not format {}", piece.text, dtype_name(dtypes[piece.array]));
    }
  }
  if (numbered && counted)
    return fail("the format '{}' has places with numbers and places without", format);
  for (size_t i = 0; i < printed.size(); ++i)
    if (!printed[i]) return fail("the format '{}' has no place for array {}", format, i);
  return {};
}

std::string print_line(
    std::string_view format,
    const std::function<std::string(size_t array, std::string_view spec, int column)>& text) {
  std::string line;
  const Result<std::vector<Piece>> pieces = parse(format);
  for (const Piece& piece : pieces.value()) {
    if (!piece.is_place) {
      line += piece.text;
      continue;
    }
    const size_t begin = line.rfind('\n') + 1;  // 0 where there is none
    line += text(piece.array, piece.text, static_cast<int>(line.size() - begin));
  }
  return line + '\n';
}

}  // namespace stow
