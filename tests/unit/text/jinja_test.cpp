// The language of chat templates. Expected texts are what Jinja itself gives (python3-jinja2, set
// up as transformers sets it up); tests/templates compares with it directly, on templates of
// models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "text/chat_template.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

Result<std::string> render(const std::string& source) {
  auto parsed = ChatTemplate::parse(source, "<s>", "</s>");
  if (!parsed) return fail(parsed.error());
  ChatSettings settings;
  settings.variables = Json::parse(R"({
    "text": "añ\u3000", "none_value": null, "list": [3, 1, 2], "empty": {},
    "dict": {"b": 1, "a": [true, null, 1.0, "x'y"], "items": "own"},
    "people": [{"name": "Bo", "age": 3}, {"name": "al"}]})");
  return parsed->render(Json::array(), nullptr, true, settings);
}

void expect_texts(const std::vector<std::pair<std::string, std::string>>& pairs) {
  for (const auto& [source, expected] : pairs) {
    const auto text = render(source);
    ASSERT_TRUE(text) << source << ": " << text.error().message;
    EXPECT_EQ(*text, expected) << source;
  }
}

void expect_errors(const std::vector<std::pair<std::string, std::string>>& pairs) {
  for (const auto& [source, part] : pairs) {
    const auto text = render(source);
    ASSERT_FALSE(text) << source << ": " << *text;
    EXPECT_THAT(text.error().message, HasSubstr(part)) << source;
  }
}

TEST(Jinja, UndefinedNoneAndFalseAreThreeThings) {
  expect_texts({
      {"{{ nothing }}|{{ none_value }}|{{ false }}", "|None|False"},
      {"{{ nothing is defined }} {{ none_value is defined }} {{ none_value is none }}",
       "False True True"},
      {"{{ nothing is none }} {{ nothing is not none }} {{ dict.zz is defined }}",
       "False True False"},
      {"{{ nothing | default('d') }} {{ none_value | default('d') }}", "d None"},
      {"{{ '' | default('d', true) }} {{ none_value | default('d', boolean=true) }}", "d d"},
      {"{{ none_value.x is defined }} {{ 'x' if false }}|", "False |"},
      {"{% for x in nothing %}{{ x }}{% else %}none{% endfor %}", "none"},
      {"{{ empty is true }} {{ 1 if empty else 2 }} {{ dict.get('zz') }} {{ dict.get('zz', 5) }}",
       "False 2 None 5"},
  });
  expect_errors({
      {"{{ nothing.x }}", "'nothing' is undefined"},
      {"{{ nothing() }}", "'nothing' is undefined"},
      {"{{ 'a' + nothing }}", "an undefined value"},
      {"{{ 'a' + none_value }}", "None"},
      {"{% for x in none_value %}{% endfor %}", "None cannot be iterated"},
      {"{{ nothing | tojson }}", "JSON"},
  });
}

TEST(Jinja, OperatorsBindAsInPython) {
  expect_texts({
      {"{{ 1 + 2 * 3 }} {{ 2 ** 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}",
       "7 8 3 -4 2 3.5"},
      {"{{ 'a' ~ 1 ~ none == 'a1None' }}", "True"},
      {"{{ 1 if 0 or 'x' and 'y' == 'y' else 2 }} {{ 0 or 'x' }} {{ 'x' and '' }}|", "1 x |"},
      {"{{ not 1 == 2 }} {{ not 'a' in 'bc' }} {{ 'a' not in 'bc' }}", "True True True"},
      {"{{ 'a' + 'B' | lower }} {{ 1 + 2 is number }}", "ab 2"},
      {"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ [1, 2] < [1, 3] }}", "True False True"},
      {"{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ [0, none] == [0, none] }}",
       "True True False True"},
      {"{{ 3 * 'ab' }} {{ [1] + [2] }} {{ (1,) }} {{ 'a' 'b' }}", "ababab [1, 2] (1,) ab"},
      {"{{ -1 | abs }} {{ - 2 }} {{ +2 }} {{ 1_000 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1e22 }}",
       "1 -2 2 1000 1000.0 0.30000000000000004 1e+22"},
  });
  expect_errors({
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 1 % 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "overflows"},
      {"{{ -9223372036854775807 - 2 }}", "overflows"},
      {"{{ 3 ** 99 }}", "overflows"},
      {"{{ 'a' + 1 }}", "a str and an int have no '+'"},
      {"{{ 1 < 'a' }}", "no order"},
      {"{{ 'a%s' % 1 }}", "not supported"},
      {"{{ 1 in 'a' }}", "not text"},
  });
}

TEST(Jinja, TextIsMadeOfCodePoints) {
  expect_texts({
      {"{{ text | length }} {{ text[1] }} {{ text[::-1] | trim }} {{ text[:-1] }}", "3 ñ ña añ"},
      {"{% for c in text %}[{{ c }}]{% endfor %}", "[a][ñ][\u3000]"},
      {"{{ text | trim }}|{{ text.strip() }}|{{ 'xxaxx'.strip('x') }}", "añ|añ|a"},
      {"{{ 'abc'[5:] }}|{{ 'abc'[-9:2] }}|{{ 'abc'[::2] }}|{{ 'abc'[9] is defined }}",
       "|ab|ac|False"},
      {"{{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'a,b,c'.rsplit(',', 1)[0] }}",
       "['a', 'b,c'] ['a', 'b'] a,b"},
      {"{{ 'aXbX'.replace('X', 'y', 1) }} {{ 'ab'.startswith(('x', 'a')) }} {{ 'a-b'.title() }}",
       "aybX True A-B"},
      {"{{ '{}-{1}-{n}'.format(1, 2, n=3) }} {{ 'ab'.find('b') }} {{ ', '.join(['a', 'b']) }}",
       "1-2-3 1 a, b"},
      {R"({{ '\x41\u00e9\n\q\'' }})", "A\u00e9\n\\q'"},
  });
  expect_errors({{"{{ text.upper() }}", "ASCII"}, {"{{ 'a'.split('') }}", "empty separator"}});
}

TEST(Jinja, ValuesPrintAsPythonsOrAsJson) {
  expect_texts({
      {"{{ dict }}", R"({'b': 1, 'a': [True, None, 1.0, "x'y"], 'items': 'own'})"},
      {"{{ dict | tojson }}", R"({"b": 1, "a": [true, null, 1.0, "x'y"], "items": "own"})"},
      {"{{ {'k': [1, {}]} | tojson(indent=2) }}", "{\n  \"k\": [\n    1,\n    {}\n  ]\n}"},
      {"{{ dict | tojson(separators=(',', ':'), sort_keys=true) }}",
       R"({"a":[true,null,1.0,"x'y"],"b":1,"items":"own"})"},
      {R"({{ "é\n\u2028\"\\/<" | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }})",
       "\"é\\n\u2028\\\"\\\\/<\" \"\\u00e9\\ud83d\\ude00\""},
      {R"({{ ['a\n\u200b'] }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 0.00001 }})",
       R"(['a\n\u200b'] 1e+16 123456789012345.0 1e-05)"},
  });
}

TEST(Jinja, ItemsAndMethodsOfOneNameAreToldApartByTheDot) {
  expect_texts({
      {"{{ dict['items'] }} {{ dict.items() | length }} {{ dict.b }} {{ dict['b'] }}", "own 3 1 1"},
      {"{{ dict.items is defined }} {{ dict.items is callable }}", "True True"},
      {"{% for k, v in dict.items() %}{{ k }}={{ v is string }};{% endfor %}",
       "b=False;a=False;items=True;"},
  });
  expect_errors({{"{{ dict.items }}", "cannot be printed"}});
}

TEST(Jinja, FiltersAndTests) {
  expect_texts({
      {"{{ list | sort }} {{ list | sort(reverse=true) }} {{ list | first }} {{ list | last }}",
       "[1, 2, 3] [3, 2, 1] 3 2"},
      {"{{ people | map(attribute='name') | join(', ') }} {{ people | sort(attribute='name') | "
       "map(attribute='name') | list }}",
       "Bo, al ['al', 'Bo']"},
      {"{{ people | selectattr('age', 'defined') | list | length }} {{ people | "
       "rejectattr('name', 'equalto', 'Bo') | map(attribute='name') | first }}",
       "1 al"},
      {"{{ people | map(attribute='age', default=0) | sum }} {{ list | map('string') | join }}",
       "3 312"},
      {"{{ list | select('odd') | list }} {{ list | reject('gt', 1) | list }} {{ list | max }}",
       "[3, 1] [1] 3"},
      {"{{ dict | dictsort | map('first') | list }} {{ [1, 1, 2] | unique | list }}",
       "['a', 'b', 'items'] [1, 2]"},
      {"{{ 'a\n\nb' | indent(2) }}|{{ 'a' | indent(2, true) }}", "a\n\n  b|  a"},
      {"{{ '3.7' | int }} {{ 'x' | int(5) }} {{ 2.9 | int }} {{ '1' | float }}", "3 5 2 1.0"},
      {"{{ '<&' | e }} {{ '<' | safe }} {{ '[1, {\"a\": 2}]' | from_json }}",
       "&lt;&amp; < [1, {'a': 2}]"},
      {"{{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 1 is in [1] }} {{ true is integer }} {{ 1 is "
       "not string }}",
       "True True True False True"},
      {"{{ 'a' is sequence }} {{ 'a' is iterable }} {{ dict is mapping }} {{ 1 is true }}",
       "True True True False"},
  });
}

TEST(Jinja, WhatALoopSetsEndsWithItsTurn) {
  expect_texts({
      {"{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
       "01020"},
      {"{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x "
       "}}",
       "3"},
      {"{% for i in [1, 2, 3] if i != 2 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% "
       "endfor %}",
       "1/2False 2/2True "},
      {"{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ loop.previtem }}{{ i "
       "}}{% if i == 3 %}{% break %}{% endif %}{% endfor %}",
       "123"},
      {"{% for i in [1, 2] %}{% for j in [1] %}{{ loop.depth }}{% endfor %}{{ loop.cycle('a', 'b') "
       "}}{% endfor %}",
       "2a2b"},
      {"{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}{% set c, d = 3, 4 %}{{ c }}{{ d }}",
       "1234"},
      {"{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
  });
  expect_errors({
      {"{% break %}", "outside of a loop"},
      {"{% set dict.x = 1 %}", "no namespace"},
      {"{% for a, b in [[1]] %}{% endfor %}", "1 values for 2 names"},
      {"{% for a in b recursive %}{% endfor %}", "recursive"},
  });
}

TEST(Jinja, MacrosCallsAndBlocks) {
  expect_texts({
      {"{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ "
       "m() }}",
       "122 123 22"},
      {"{% macro m() %}{{ x }}{% endmacro %}{% set x = 'late' %}{{ m() }}", "late"},
      {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
       "3210"},
      {"{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}",
       "<1>"},
      {"{% set x %}a{{ 1 }}{% endset %}{{ x }} {% filter upper %}b{% endfilter %}", "a1 B"},
      {"{% generation %}g{% endgeneration %}{% raw %}{{ x }}{% endraw %}", "g{{ x }}"},
      {"{% set l = [1, 2] %}{% set _ = l.append(3) %}{{ l.pop(0) }}{{ l }}", "1[2, 3]"},
  });
  expect_errors({
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "takes 1 arguments"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "no argument 'b'"},
      {"{{ range(1, 2, 0) }}", "step of 0"},
      {"{{ [1].pop(7) }}", "pop()"},
  });
}

TEST(Jinja, TagsTakeWhiteSpaceAsTheySay) {
  expect_texts({
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"a\n  {{ 1 }}\n", "a\n  1"},
      {"a \n {%- if true -%} \n b \n {%- endif -%} \n c", "abc"},
      {"a\n  {%+ if true %}b{% endif +%}\nc", "a\n  b\nc"},
      {"a\n  {# comment #}\nb{#- x -#}\n c", "a\nbc"},
      {"{% if true %}\n    {% if true %}\n  x\n{% endif %}{% endif %}", "  x\n"},
      {"a\r\nb\r{{ 'c\r\nd' }}\n\n", "a\nb\nc\nd\n"},
      {"{{- ' a ' -}} \n b", " a b"},
      {"{{ {'a': {'b': 1}}['a']['b'] }} {{ '}}' }} {%- set a = '%}' -%} {{ a }}", "1 }}%}"},
  });
}

TEST(Jinja, WhatIsNotSupportedIsRefusedWithItsLine) {
  const std::vector<std::string> sources{
      "\n{% include 'x' %}",   "\n{% import 'x' as y %}", "\n{{ x | xmlattr }}",
      "\n{{ x is nonsense }}", "\n{{ f(*x) }}",           "\n{% extends 'x' %}",
  };
  for (const std::string& source : sources) {
    const auto parsed = ChatTemplate::parse(source, "", "");
    ASSERT_FALSE(parsed) << source;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported) << source;
    EXPECT_THAT(parsed.error().message, HasSubstr("line 2")) << source;
  }
}

TEST(Jinja, BrokenTemplatesAreRefusedWithTheirLine) {
  const std::vector<std::string> sources{
      "\n{{ }}",
      "\n{{ 1 2 }}",
      "\n{% if x %}",
      "\n{% endif %}",
      "\n{% else %}",
      "\n{{ (1 }}",
      "\n{{ a. }}",
      "\n{{ [1, }}",
      "\n{% for x of y %}",
      "\n{% set 1 = 2 %}",
      "\n{{ 'a }}",
      "\n{{ a ? b }}",
      "\n{% macro m %}",
      "\n{{ f(a=1, 2) }}",
      "\n{{ x[] }}",
      "\n{{ x | }}",
      "\n{% if x }}",
      "\n{{ x %}",
      "\n{% for x in y %}{% endif %}",
  };
  for (const std::string& source : sources) {
    const auto parsed = ChatTemplate::parse(source, "", "");
    ASSERT_FALSE(parsed) << source;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidFile) << source;
    EXPECT_THAT(parsed.error().message, HasSubstr("line 2")) << source;
  }
}

}  // namespace
}  // namespace sinew
