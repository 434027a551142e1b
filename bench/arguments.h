// The arguments of a benchmark of kernels: words one after another, each understood or refused.
// Not for the program's commands; those have cli/arguments.h.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace stow {

struct BadArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The words behind the program's name, each taken once.
class Arguments {
 public:
  Arguments(int argc, char** argv) : words_(argv + 1, argv + std::max(1, argc)) {}

  size_t left() const { return words_.size() - taken_; }

  /// The next word as a number. Errors: BadArgument where it is missing, no number or out of range.
  template <typename T>
  T number(std::string_view what, T least, T most) {
    const std::string_view word = next(what);
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !(value >= least && value <= most))
      throw BadArgument(fmt::format("{} takes {} to {}, not '{}'", what, least, most, word));
    return value;
  }

  /// The next word, one of those that are known. Errors: BadArgument where it is missing or another.
  std::string_view word(std::string_view what, const std::vector<std::string_view>& known) {
    const std::string_view word = next(what);
    if (std::find(known.begin(), known.end(), word) == known.end())
      throw BadArgument(fmt::format("{} takes {}, not '{}'", what, fmt::join(known, ", "), word));
    return word;
  }

  /// Errors: BadArgument where a word is left.
  void end() const {
    if (left() > 0) throw BadArgument(fmt::format("'{}' is not understood", words_[taken_]));
  }

 private:
  std::string_view next(std::string_view what) {
    if (left() == 0) throw BadArgument(fmt::format("{} is missing", what));
    return words_[taken_++];
  }

  std::vector<std::string_view> words_;
  size_t taken_ = 0;
};

/// Whether any word asks for the usage.
inline bool asks_for_help(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--help" || word == "-h"; });
}

/// Runs a benchmark and returns its exit status: 0, or 2 after saying what was not understood and the
/// usage on stderr. --help prints the usage and runs nothing.
inline int run_bench_program(int argc, char** argv, std::string_view usage,
                             const std::function<void(Arguments)>& run) {
  if (asks_for_help(argc, argv)) {
    fmt::print("{}", usage);
    return 0;
  }
  try {
    run(Arguments(argc, argv));
  } catch (const BadArgument& error) {
    fmt::print(stderr, "{}\n{}", error.what(), usage);
    return 2;
  }
  return 0;
}

}  // namespace stow
