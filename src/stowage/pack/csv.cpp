#include "stowage/pack/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include "stowage/base/text_file.h"

namespace stow::pack {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr size_t kMaxRows = size_t{1} << 24;
constexpr std::array<std::string_view, 5> kNames = {"id", "lower", "upper", "size", "offset"};
enum Column { kId, kLower, kUpper, kSize, kOffset };

// The next line without its ending, LF or CRLF; `text` goes on behind it.
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void split_fields(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (size_t from = 0;;) {
    const size_t comma = line.find(',', from);
    fields.push_back(line.substr(from, comma - from));
    if (comma == std::string_view::npos) return;
    from = comma + 1;
  }
}

// For an error: short, and without what a terminal would obey.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 40))
    out += static_cast<unsigned char>(c) < ' ' || c == 127 ? '?' : c;
  return out + (text.size() > 40 ? "...'" : "'");
}

// For each field of the header, its index in kNames; the first n_needed names are required.
Result<std::vector<Column>> read_header(std::string_view line, size_t n_needed) {
  std::vector<std::string_view> fields;
  split_fields(line, fields);
  std::vector<Column> order;
  for (const std::string_view field : fields) {
    const auto at = std::find(kNames.begin(), kNames.end(), field);
    if (at == kNames.end()) return fail("unknown column {}", quoted(field));
    const auto column = static_cast<Column>(at - kNames.begin());
    if (std::find(order.begin(), order.end(), column) != order.end())
      return fail("column {} stands twice", quoted(field));
    order.push_back(column);
  }
  for (size_t c = 0; c < n_needed; ++c)
    if (std::find(order.begin(), order.end(), c) == order.end())
      return fail("column '{}' is missing", kNames[c]);
  return order;
}

Result<int64_t> read_number(std::string_view field, std::string_view name) {
  int64_t value = 0;
  const char* const end = field.data() + field.size();
  const auto [last, code] = std::from_chars(field.data(), end, value);
  if (code == std::errc::result_out_of_range && last == end)
    return fail("{} {} does not fit in 64 bits", name, quoted(field));
  if (code != std::errc() || last != end)
    return fail("{}: expected an integer, got {}", name, quoted(field));
  if (value < 0) return fail("{} {} is negative", name, value);
  return value;
}

struct Row {
  std::string_view id;
  std::array<int64_t, 5> values = {};  // By column; that of the id is unused.
};

Result<Row> read_row(std::string_view line, const std::vector<Column>& order,
                     std::vector<std::string_view>& fields) {
  split_fields(line, fields);
  if (fields.size() != order.size())
    return fail("{} fields where the header has {}", fields.size(), order.size());
  Row row;
  for (size_t f = 0; f < fields.size(); ++f) {
    if (order[f] == kId) {
      row.id = fields[f];
      continue;
    }
    const Result<int64_t> value = read_number(fields[f], kNames[order[f]]);
    if (!value) return value.failure();
    row.values[order[f]] = *value;
  }
  if (row.id.empty()) return fail("the id is empty");
  if (row.values[kLower] >= row.values[kUpper])
    return fail("lower {} is not below upper {}", row.values[kLower], row.values[kUpper]);
  return row;
}

}  // namespace

Result<CsvProblem> read_csv(const std::string& path, CsvColumns columns) {
  const Result<std::string> file = read_text_or_stdin(path);
  if (!file) return file.failure();
  std::string_view text = *file;
  size_t line_number = 1;
  const auto bad = [&](const std::string& why) {
    return fail("{}:{}: {}", path == "-" ? "standard input" : path, line_number, why);
  };

  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  if (text.empty()) return bad("expected a header and rows, got an empty file");
  const Result<std::vector<Column>> order =
      read_header(next_line(text), columns == CsvColumns::kSolution ? 5 : 4);
  if (!order) return bad(order.error());

  CsvProblem out;
  std::unordered_map<std::string_view, size_t> line_of;
  std::vector<std::string_view> fields;
  int64_t total = 0;
  while (!text.empty()) {
    ++line_number;
    if (text.find_first_not_of("\r\n") == std::string_view::npos) break;  // blank lines at the end
    const Result<Row> row = read_row(next_line(text), *order, fields);
    if (!row) return bad(row.error());
    const auto& [id, values] = *row;
    const auto [at, fresh] = line_of.try_emplace(id, line_number);
    if (!fresh) return bad(fmt::format("id {} stands in line {} too", quoted(id), at->second));
    // One byte of alignment a buffer, as check_problem counts.
    if (values[kSize] >= kMaxBytes - total) return bad("the sizes sum to more than 2^62 bytes");
    total += values[kSize] + 1;
    if (out.ids.size() == kMaxRows) return bad(fmt::format("more than {} rows", kMaxRows));
    out.ids.emplace_back(id);
    out.problem.buffers.push_back({{{0, values[kSize], values[kLower], values[kUpper]}}, 1});
    if (columns == CsvColumns::kSolution) out.offsets.push_back(values[kOffset]);
  }
  if (out.ids.empty()) return bad("no rows follow the header");
  return out;
}

Result<void> write_csv(const std::string& path, const CsvProblem& rows,
                       const std::vector<int64_t>& offsets) {
  STOW_CHECK(offsets.size() == rows.ids.size(), "{} offsets", offsets.size());
  std::string text = "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    const Rect& r = rows.problem.buffers[i].rects[0];
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{}\n", rows.ids[i], r.lower, r.upper,
                   r.size, offsets[i]);
  }
  return write_text_or_stdout(path, text);
}

}  // namespace stow::pack
