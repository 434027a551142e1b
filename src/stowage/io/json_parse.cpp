#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "stowage/io/json.h"

namespace stow {
namespace {

// Builds a Json from the events of the parser, so that limits and duplicate keys are seen while
// reading and nothing larger than the limits is ever held.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(uint64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override {
    Json done(std::move(open_.back().elements));
    return close(std::move(done));
  }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() override {
    std::vector<std::string_view> keys;
    for (const JsonMember& member : open_.back().members) keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) return refuse(fmt::format("the key '{}' stands twice", *twice));
    Json done(std::move(open_.back().members));
    return close(std::move(done));
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("a syntax error at byte {}", byte));
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  // An array or an object being read.
  struct Open {
    Json::Array elements;
    Json::Object members;
    std::optional<std::string> key;  // of the member being read; none in an array
  };

  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  bool count() {
    return ++n_values_ <= limits_.n_values ||
           refuse(fmt::format("more than {} values", limits_.n_values));
  }

  bool add(Json value) {
    if (!count()) return false;
    attach(std::move(value));
    return true;
  }

  bool open() {
    if (!count()) return false;
    if (static_cast<int>(open_.size()) >= limits_.depth)
      return refuse(fmt::format("nested deeper than {}", limits_.depth));
    open_.emplace_back();
    return true;
  }

  bool close(Json done) {
    open_.pop_back();
    attach(std::move(done));
    return true;
  }

  // Members go to the end without a look for their key, which would be quadratic: end_object finds
  // what stands twice.
  void attach(Json value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (Open& top = open_.back(); top.key)
      top.members.push_back({std::move(*top.key), std::move(value)});
    else
      top.elements.push_back(std::move(value));
  }

  JsonLimits limits_;
  int64_t n_values_ = 0;
  std::vector<Open> open_;
  Json root_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  // The parser takes a zero byte for the end and would not see what stands behind it.
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    return fail("not JSON that can be read: a zero byte at byte {}", at + 1);
  Builder builder(limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
    return fail("not JSON that can be read: {}", builder.error());
  return builder.take();
}

}  // namespace stow
