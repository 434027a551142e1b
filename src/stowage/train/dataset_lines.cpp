#include "stowage/train/dataset_lines.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "stowage/base/bytes.h"
#include "stowage/io/files.h"
#include "stowage/io/json.h"
#include "stowage/io/json_fields.h"
#include "stowage/train/dataset_chat.h"

namespace stow {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{256} << 20;
constexpr int64_t kChunkBytes = int64_t{1} << 20;
// Largest number of lines that are tokenized at a time.
constexpr size_t kMaxBlockLines = 1024;

enum class Format : uint8_t { kText, kCompletion, kMessages, kTokens };

const char* format_name(Format format) {
  switch (format) {
    case Format::kText:
      return "text";
    case Format::kCompletion:
      return "prompt and completion";
    case Format::kMessages:
      return "messages";
    case Format::kTokens:
      return "tokens";
  }
  return "";
}

Result<Format> format_of(const Json& line) {
  constexpr const char* kExpected =
      "expected an object with text, prompt and completion, messages, or tokens";
  if (!line.is_object()) return fail("{}, got {}", kExpected, shown(line));
  const bool has_prompt = line.find("prompt"), has_completion = line.find("completion");
  std::vector<Format> found;
  if (line.find("text")) found.push_back(Format::kText);
  if (has_prompt || has_completion) found.push_back(Format::kCompletion);
  if (line.find("messages")) found.push_back(Format::kMessages);
  if (line.find("tokens")) found.push_back(Format::kTokens);
  if (found.empty()) return fail("{}, got none of these keys", kExpected);
  if (found.size() > 1)
    return fail("{}, got {} beside {}", kExpected, format_name(found[1]), format_name(found[0]));
  if (has_prompt != has_completion)
    return fail("expected prompt and completion, got {} alone",
                has_prompt ? "prompt" : "completion");
  return found[0];
}

// One line, as arguments of Examples::append.
struct Line {
  Format format = Format::kText;
  std::vector<int32_t> values;
  int64_t n_lost_turns = 0;
};

void append_eos(const text::TokenizerFolder& text, std::vector<int32_t>& ids) {
  const Json* eos = text.special_tokens.find("eos_token");
  if (!eos || !eos->as_string()) return;
  const int32_t id = text.tokenizer.id_of(*eos->as_string());
  if (id >= 0 && (ids.empty() || ids.back() != id)) ids.push_back(id);
}

// Makes targets of the ids from `first` on; earlier ids are none.
void mask_before(size_t first, std::vector<int32_t>& ids) {
  for (size_t k = 0; k < std::min(first, ids.size()); ++k) ids[k] = ~ids[k];
}

Result<std::vector<int32_t>> text_values(const Json& line, const LineOptions& options) {
  const std::string* text = line.find("text")->as_string();
  if (!text) return fail("text: expected a string, got {}", shown(*line.find("text")));
  if (text->empty()) return std::vector<int32_t>();
  Result<std::vector<int32_t>> ids = options.text->tokenizer.encode(*text);
  if (!ids) return fail("text: {}", ids.error());
  append_eos(*options.text, *ids);
  mask_before(1, *ids);
  return ids;
}

Result<std::vector<int32_t>> completion_values(const Json& line, const LineOptions& options) {
  const std::string* prompt = line.find("prompt")->as_string();
  const std::string* completion = line.find("completion")->as_string();
  if (!prompt) return fail("prompt: expected a string, got {}", shown(*line.find("prompt")));
  if (!completion)
    return fail("completion: expected a string, got {}", shown(*line.find("completion")));
  if (completion->empty()) return fail("completion: expected a text, got an empty one");
  Result<std::vector<int32_t>> ids = options.text->tokenizer.encode(*prompt + *completion);
  if (!ids) return fail("prompt and completion: {}", ids.error());
  size_t first = 1;
  if (options.mask_prompt) {
    const Result<std::vector<int32_t>> before = options.text->tokenizer.encode(*prompt);
    if (!before) return fail("prompt: {}", before.error());
    first = std::max<size_t>(1, common_prefix(*before, *ids));
  }
  append_eos(*options.text, *ids);
  mask_before(first, *ids);
  return ids;
}

Result<std::vector<int32_t>> token_values(const Json& line, const LineOptions& options) {
  const Json::Array* tokens = line.find("tokens")->as_array();
  if (!tokens) return fail("tokens: expected an array of ids, got {}", shown(*line.find("tokens")));
  std::vector<int32_t> ids;
  ids.reserve(tokens->size());
  for (const Json& token : *tokens) {
    const Result<int64_t> id = token.as_int();
    if (!id || *id < 0 || *id >= options.vocab)
      return fail("tokens: expected ids from 0 to {}, got {}", options.vocab - 1, shown(token));
    ids.push_back(static_cast<int32_t>(*id));
  }
  const Json* member = line.find("mask");
  if (!member || member->is_null()) {
    mask_before(1, ids);
    return ids;
  }
  const Json::Array* mask = member->as_array();
  if (!mask) return fail("mask: expected an array of 0 and 1, got {}", shown(*member));
  if (mask->size() != ids.size())
    return fail("mask: expected {} elements as tokens has, got {}", ids.size(), mask->size());
  for (size_t k = 0; k < ids.size(); ++k) {
    const Json& element = (*mask)[k];
    const Result<int64_t> number = element.as_int();
    const bool* boolean = element.as_bool();
    if (!boolean && (!number || (*number != 0 && *number != 1)))
      return fail("mask: expected 0 or 1, got {}", shown(element));
    if (k == 0 || !(boolean ? *boolean : *number == 1)) ids[k] = ~ids[k];
  }
  return ids;
}

Result<Line> read_line(std::string_view bytes, const LineOptions& options) {
  const Result<Json> parsed = parse_json(bytes, {.n_values = int64_t{1} << 23});
  if (!parsed) return parsed.failure();
  const Result<Format> format = format_of(*parsed);
  if (!format) return format.failure();
  if (*format != Format::kTokens && !options.text)
    return fail("expected the key tokens, as the model has no tokenizer, got {}",
                format_name(*format));
  Line line{.format = *format};
  Result<std::vector<int32_t>> values = std::vector<int32_t>();
  switch (*format) {
    case Format::kText:
      values = text_values(*parsed, options);
      break;
    case Format::kCompletion:
      values = completion_values(*parsed, options);
      break;
    case Format::kMessages: {
      Result<ChatTokens> chat = chat_tokens(*parsed, *options.text, options.mask_prompt);
      if (!chat) return chat.failure();
      line.n_lost_turns = chat->n_lost_turns;
      values = std::move(chat->values);
      break;
    }
    case Format::kTokens:
      values = token_values(*parsed, options);
      break;
  }
  if (!values) return values.failure();
  for (const int32_t value : *values)
    if ((value < 0 ? ~value : value) >= options.vocab)
      return fail("the tokenizer gives the id {}, outside the model's vocabulary of {}",
                  value < 0 ? ~value : value, options.vocab);
  line.values = std::move(*values);
  return line;
}

// Reads the lines of a file in order.
class LineReader {
 public:
  explicit LineReader(const InputFile& file) : file_(file) {}

  // Returns nonempty lines with their numbers; no lines at the end of the file.
  Result<void> next(std::vector<std::pair<int64_t, std::string>>& lines) {
    lines.clear();
    int64_t bytes = 0;
    while (lines.size() < kMaxBlockLines && bytes < 4 * kChunkBytes) {
      std::string line;
      const Result<bool> any = next_line(line);
      if (!any) return any.failure();
      if (!*any) break;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      bytes += static_cast<int64_t>(line.size());
      lines.emplace_back(number_, std::move(line));
    }
    return {};
  }

 private:
  Result<bool> next_line(std::string& line) {
    if (at_ == chunk_.size() && offset_ == file_.size_bytes()) return false;
    ++number_;
    while (true) {
      if (at_ == chunk_.size()) {
        const int64_t n = std::min(kChunkBytes, file_.size_bytes() - offset_);
        if (n == 0) return true;  // the last line has no end
        chunk_.resize(static_cast<size_t>(n));
        if (Result<void> read = file_.read(offset_, std::as_writable_bytes(std::span(chunk_)));
            !read)
          return read.failure();
        offset_ += n;
        at_ = 0;
      }
      const size_t end = chunk_.find('\n', at_);
      const size_t stop = end == std::string::npos ? chunk_.size() : end;
      if (static_cast<int64_t>(line.size() + (stop - at_)) > kMaxLineBytes)
        return fail("{}: line {}: expected a line of at most {}", file_.path(), number_,
                    format_bytes(kMaxLineBytes));
      line.append(chunk_, at_, stop - at_);
      at_ = stop;
      if (end == std::string::npos) continue;
      ++at_;
      return true;
    }
  }

  const InputFile& file_;
  std::string chunk_;
  size_t at_ = 0;       // in the chunk
  int64_t offset_ = 0;  // of the file, after the chunk
  int64_t number_ = 0;
};

}  // namespace

void Examples::append(const std::vector<int32_t>& values) {
  values_.insert(values_.end(), values.begin(), values.end());
  begin_.push_back(static_cast<int64_t>(values_.size()));
}

void Examples::digest_into(Digest& digest) const {
  digest.update(std::as_bytes(std::span(begin_)));
  digest.update(std::as_bytes(std::span(values_)));
}

Result<Examples> read_examples(const std::string& path, const LineOptions& options) {
  const Result<InputFile> file = InputFile::open(path);
  if (!file) return file.failure();
  LineReader reader(*file);
  Examples examples;
  std::optional<Format> format;
  std::vector<std::pair<int64_t, std::string>> lines;
  while (true) {
    if (Result<void> read = reader.next(lines); !read) return read.failure();
    if (lines.empty()) break;
    std::vector<std::optional<Result<Line>>> done(lines.size());
    const auto n = static_cast<int64_t>(lines.size());
#pragma omp parallel for schedule(dynamic, 8) if (n > 8)
    for (int64_t i = 0; i < n; ++i)
      done[static_cast<size_t>(i)] = read_line(lines[static_cast<size_t>(i)].second, options);
    for (size_t i = 0; i < lines.size(); ++i) {
      const Result<Line>& line = *done[i];
      if (!line) return fail("{}: line {}: {}", path, lines[i].first, line.error());
      if (!format) format = line->format;
      if (line->format != *format)
        return fail("{}: line {}: expected {} as in the lines before, got {}", path, lines[i].first,
                    format_name(*format), format_name(line->format));
      if (examples.size() == std::numeric_limits<int32_t>::max())
        return fail("{}: line {}: expected at most {} lines", path, lines[i].first,
                    examples.size());
      examples.append(line->values);
      examples.n_lost_turns += line->n_lost_turns;
    }
  }
  if (examples.size() == 0) return fail("{}: expected lines of JSON, got an empty file", path);
  return examples;
}

}  // namespace stow
