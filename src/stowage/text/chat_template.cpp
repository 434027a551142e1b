#include "stowage/text/chat_template.h"

#include <ctime>

#include "stowage/text/jinja_run.h"

namespace stow::text {
namespace {

using namespace jinja;

Value range(const Arguments& a) {
  int64_t begin = 0, end = integer_argument(a, 0, "stop", 0);
  if (a.positional.size() > 1) begin = end, end = integer_argument(a, 1, "stop", 0);
  const int64_t stride = integer_argument(a, 2, "step", 1);
  constexpr int64_t kMost = 100'000;  // as Jinja2's sandbox
  if (stride == 0) throw Error("range: expected a step other than 0");
  List out;
  for (int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) {
    if (static_cast<int64_t>(out.size()) == kMost) throw Error("range: too many values");
    out.emplace_back(i);
  }
  return Value(std::move(out));
}

Dict global_functions() {
  Dict globals;
  const auto add = [&](const char* name, Function f) {
    globals.emplace_back(name, Value(std::move(f)));
  };
  add("range", range);
  add("dict", [](const Arguments& a) { return Value(a.named); });
  add("namespace", [](const Arguments& a) {
    auto members = std::make_shared<Namespace>();
    for (const Value& v : a.positional)
      if (v.dict()) members->members = *v.dict();
    members->members.insert(members->members.end(), a.named.begin(), a.named.end());
    return Value(std::move(members));
  });
  add("raise_exception", [](const Arguments& a) -> Value {
    throw Error("raised: " + (a.positional.empty() ? std::string() : to_text(a.positional[0])));
  });
  add("strftime_now", [](const Arguments& a) {
    const Value* format = argument(a, 0, "format");
    if (!format || !format->string()) throw Error("strftime_now: expected a format");
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[512];
    const size_t n = std::strftime(text, sizeof text, format->string()->c_str(), &local);
    return Value(std::string(text, n));
  });
  return globals;
}

}  // namespace

struct ChatTemplate::Parsed {
  Block block;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (!is_utf8(source)) return fail("the template is not UTF-8");
  try {
    return ChatTemplate(std::make_shared<const Parsed>(Parsed{jinja::parse(source)}));
  } catch (const Error& e) {
    return fail("{}", e.what());
  }
}

Result<std::string> ChatTemplate::render(const Json& variables) const {
  try {
    Dict globals = global_functions();
    if (const Json::Object* members = variables.as_object())
      for (const JsonMember& m : *members) globals.emplace_back(m.key, Value::from_json(m.value));
    return jinja::render(parsed_->block, std::move(globals));
  } catch (const Error& e) {
    return fail("{}", e.what());
  }
}

}  // namespace stow::text
