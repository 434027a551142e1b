#include "stowage/text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/source_path.h"

namespace stow::text {
namespace {

Result<std::string> render(std::string_view source, const Json& variables = Json::object()) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  return parsed ? parsed->render(variables) : Result<std::string>(parsed.failure());
}

// What Jinja2 makes of templates: tests/data/make_chat_templates.py.
TEST(ChatTemplate, DoesAsJinja) {
  std::ifstream file(source_path("tests/data/chat_templates.txt"));
  Json variables;
  int n = 0;
  for (std::string line; std::getline(file, line);) {
    const Result<Json> row = parse_json(line);
    ASSERT_TRUE(row.ok()) << row.error();
    if (const Json* given = row->find("variables")) {
      variables = *given;
      continue;
    }
    ++n;
    const std::string& source = *row->find("template")->as_string();
    SCOPED_TRACE(source);
    const Result<std::string> got = render(source, variables);
    const std::string* wanted = row->find("text")->as_string();
    EXPECT_EQ(got.ok(), wanted != nullptr) << (got.ok() ? *got : got.error());
    if (got.ok() && wanted) {
      EXPECT_EQ(*got, *wanted);
    }
  }
  EXPECT_GT(n, 300);
}

struct Refusal {
  std::string source, error;
};
TEST(ChatTemplate, SaysWhatIsWrong) {
  const Refusal cases[] = {
      {"{{ raise_exception('no tools') }}", "raised: no tools"},
      {"a\n{{ nope.x }}", "line 2: 'nope' is undefined"},
      {"{% if x %}\n\n{{ 1 + 'a' }}{% endif %}{% set x = 1 %}{% if x %}\n{{ 1 + 'a' }}{% endif %}",
       "line 4: operator + takes no values of types int and str"},
      {"{{ x|nope }}", "line 1: the filter nope is not supported"},
      {"{{ x is nope }}", "line 1: the test nope is not supported"},
      {"\n{% include 'x' %}", "line 2: the statement include is not supported"},
      {"{% for i in [1] recursive %}{% endfor %}", "line 1: recursive loops are not supported"},
      {"{% raw %}{% endraw %}", "line 1: the statement raw is not supported"},
      {"{% if 1 %}", "line 1: expected {% endif %}"},
      {"{{ 1", "line 1: a tag has no end"},
      {"{# 1", "line 1: a comment has no end"},
      {"{{ 'a }}", "line 1: a text has no end"},
      {"{{ 1 // 0 }}", "line 1: division by zero"},
      {"{{ 99999999999999999999 }}", "line 1: an integer is too large"},
      {"{{ 'é'|upper }}", "line 1: changing the case of letters outside ASCII is not supported"},
      {"{{ [].append(1) }}", "line 1: a value of type list has no attribute 'append'"},
      {"\xff", "the template is not UTF-8"},
  };
  for (const Refusal& c : cases) {
    SCOPED_TRACE(c.source);
    const Result<std::string> got = render(c.source);
    ASSERT_FALSE(got.ok()) << *got;
    EXPECT_EQ(got.error(), c.error);
  }
}

TEST(ChatTemplate, HasLimits) {
  const std::string deep(2000, '(');
  EXPECT_EQ(render("{{ " + deep + "1" + std::string(2000, ')') + " }}").error(),
            "line 1: the template nests too deep");
  EXPECT_EQ(render("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}").error(),
            "line 1: the template calls itself too deep");
  EXPECT_EQ(render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
                .error(),
            "line 1: the template takes too many steps");
  EXPECT_EQ(render("{{ 'a' * 1000000000 }}").error(), "line 1: the template writes too much");
  EXPECT_EQ(render("{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = "
                   "ns.s + ns.s %}{% endfor %}")
                .error(),
            "line 1: the template writes too much");
  std::string many;
  for (int i = 0; i < 300; ++i) many += "{% if 1 %}";
  EXPECT_EQ(render(many).error(), "line 1: the template nests too deep");
}

// Templates cut short or changed anywhere are refused or rendered, and nothing else happens.
TEST(ChatTemplate, SurvivesDamage) {
  std::ifstream file(source_path("tests/data/chat_templates.txt"));
  uint64_t seed = 1;
  const auto random = [&] {
    return seed = seed * 6364136223846793005u + 1442695040888963407u, seed >> 33;
  };
  for (std::string line; std::getline(file, line);) {
    const Result<Json> row = parse_json(line);
    const Json* source = row->find("template");
    if (!source) continue;
    for (int i = 0; i < 8; ++i) {
      std::string damaged = *source->as_string();
      if (damaged.empty()) continue;
      if (i % 2 == 0) damaged.resize(random() % damaged.size());
      if (!damaged.empty()) damaged[random() % damaged.size()] = "{}%|()[].'x-1"[random() % 13];
      (void)render(damaged);
    }
  }
}

}  // namespace
}  // namespace stow::text
