#include "stowage/text/split.h"

#include <algorithm>

namespace stow::text {
namespace {

struct Part {
  size_t begin, end;
  bool is_match;
};

// The text cut at the matches of a pattern. Empty matches cut and match nothing.
Result<void> find_parts(const Regex& pattern, std::string_view text, std::vector<Part>& parts) {
  parts.clear();
  size_t done = 0;
  for (size_t from = 0; from <= text.size();) {
    const Result<Regex::Match> found = pattern.find(text, from);
    if (!found) return found.failure();
    if (!found->found) break;
    if (done < found->begin) parts.push_back({done, found->begin, false});
    if (found->begin < found->end) parts.push_back({found->begin, found->end, true});
    done = found->end;
    from = found->end > found->begin ? found->end
           : done < text.size()      ? done + static_cast<size_t>(char_bytes(text, done))
                                     : text.size() + 1;
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
  return {};
}

// The parts as `behavior` joins them. Source: Hugging Face's tokenizers, normalizer.rs, split.
void join(std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<Part> joined;
  bool previous = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& p) { return p.is_match; });
      return;
    case SplitBehavior::kContiguous:
      for (const Part& p : parts) {
        if (p.is_match == previous && !joined.empty())
          joined.back().end = p.end;
        else
          joined.push_back(p);
        previous = p.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& p : parts) {
        if (p.is_match && !previous && !joined.empty())
          joined.back().end = p.end;
        else
          joined.push_back(p);
        previous = p.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto p = parts.rbegin(); p != parts.rend(); ++p) {
        if (p->is_match && !previous && !joined.empty())
          joined.back().begin = p->begin;
        else
          joined.push_back(*p);
        previous = p->is_match;
      }
      std::reverse(joined.begin(), joined.end());
      break;
  }
  parts = std::move(joined);
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

std::string replaced(std::string_view text, char from, std::string_view to) {
  std::string out;
  for (const char c : text) c == from ? out.append(to) : out.append(1, c);
  return out;
}

// Applies one step to one word.
class Splitter {
 public:
  Splitter(std::vector<Word>& out, std::deque<std::string>& storage)
      : out_(out), storage_(storage) {}

  Result<void> operator()(const SplitByPattern& step, const Word& word) {
    if (Result<void> done = find_parts(step.pattern, word.text, parts_); !done) return done;
    if (step.invert)
      for (Part& p : parts_) p.is_match = !p.is_match;
    join(parts_, step.behavior);
    return emit(word);
  }
  Result<void> operator()(const SplitDigits& step, const Word& word) {
    parts_.clear();
    for (size_t at = 0; at < word.text.size();) {
      const size_t end = at + static_cast<size_t>(char_bytes(word.text, at));
      const bool digit = is_numeric(decode_char(word.text, at));
      if (!parts_.empty() && parts_.back().is_match == digit && !(digit && step.individual))
        parts_.back().end = end;
      else
        parts_.push_back({at, end, digit});
      at = end;
    }
    return emit(word);
  }
  Result<void> operator()(const ByteLevel& step, Word word) {
    if (step.add_prefix_space && !word.text.starts_with(' '))
      word.text = keep(std::string(" ").append(word.text));
    if (!step.use_regex) return out_.push_back(word), Result<void>();
    return (*this)(SplitByPattern{gpt2_pattern()}, word);
  }
  Result<void> operator()(const Metaspace& step, Word word) {
    std::string text = replaced(word.text, ' ', step.replacement);
    const bool prepends = step.prepend == Metaspace::Prepend::kAlways ||
                          (step.prepend == Metaspace::Prepend::kFirst && word.at_start);
    if (prepends && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
    word.text = keep(std::move(text));
    if (!step.split) return out_.push_back(word), Result<void>();
    parts_.clear();
    for (size_t done = 0; done < word.text.size();) {
      const size_t match = word.text.find(step.replacement, done);
      const size_t end = match == std::string_view::npos ? word.text.size() : match;
      if (done < end) parts_.push_back({done, end, false});
      if (match != std::string_view::npos)
        parts_.push_back({end, end + step.replacement.size(), true});
      done = parts_.back().end;
    }
    join(parts_, SplitBehavior::kMergedWithNext);
    return emit(word);
  }

 private:
  std::string_view keep(std::string text) { return storage_.emplace_back(std::move(text)); }
  Result<void> emit(const Word& word) {
    for (const Part& p : parts_)
      out_.push_back({word.text.substr(p.begin, p.end - p.begin), word.at_start && p.begin == 0});
    return {};
  }

  std::vector<Word>& out_;
  std::deque<std::string>& storage_;
  std::vector<Part> parts_;
};

}  // namespace

const Regex& gpt2_pattern() {
  static const Regex regex = [] {
    Result<Regex> compiled = Regex::compile(
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
    STOW_CHECK(compiled.ok(), "{}", compiled.error());
    return std::move(*compiled);
  }();
  return regex;
}

Result<std::string> normalize_text(const std::vector<Normalizer>& steps, std::string text) {
  for (const Normalizer& step : steps) {
    Result<std::string> next =
        std::visit(Overloaded{[&](NormalForm form) { return normalize(text, form); },
                              [&](const Prepend& p) -> Result<std::string> {
                                return text.empty() ? text : p.text + text;
                              },
                              [&](const Replace& r) -> Result<std::string> {
                                std::vector<Part> parts;
                                if (Result<void> done = find_parts(r.pattern, text, parts); !done)
                                  return done.failure();
                                std::string out;
                                for (const Part& p : parts)
                                  p.is_match ? out.append(r.content)
                                             : out.append(text, p.begin, p.end - p.begin);
                                return out;
                              }},
                   step);
    if (!next) return next;
    text = std::move(*next);
  }
  return text;
}

Result<std::vector<Word>> split_words(const std::vector<PreTokenizer>& steps, Word text,
                                      std::deque<std::string>& storage) {
  std::vector<Word> words = {text}, next;
  for (const PreTokenizer& step : steps) {
    next.clear();
    Splitter splitter(next, storage);
    for (const Word& word : words) {
      if (word.text.empty()) continue;
      const Result<void> done = std::visit([&](const auto& s) { return splitter(s, word); }, step);
      if (!done) return done.failure();
    }
    std::swap(words, next);
  }
  return words;
}

}  // namespace stow::text
