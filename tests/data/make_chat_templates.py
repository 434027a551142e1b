#!/usr/bin/env python3
"""Makes tests/data/chat_templates.txt: templates, and the text that Jinja2 makes of them in the environment of
transformers (5.24.0), or null where it refuses them. The first line holds the variables. Run from the root.
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {"messages":[{"role":"system","content":" Be \"brief\".\n"},{"role":"user","content":"Hé <b> 'x' 漢字","n":3},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1,"b":[1,2.5,None,True],"c":"é\n"}}}]},{"role":"tool","content":"{\"k\": 1}"},{"role":"user","content":"a</think>\n\n b\n"}],
 "tools":[{"type":"function","function":{"name":"get","description":"d","parameters":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}}],
 "bos_token":"<s>","eos_token":"</s>","add_generation_prompt":True,"x":5,"f":2.0,"s":"Hello, World","l":[3,1,2],"d":{"b":1,"a":{"z":[1,"q"]}},"none":None,"e":[],"yes":True}

EXPRESSIONS = r'''x
x + 1
x / 2
x // 2
-x // 2
x % 3
-x % 3
-7 // 2
7 // -2
-7 % 3
2 ** 10
2 ** -1
f
f * 3
f // 2
1e3
1.5e-7
100000000000000000.0
0.1 + 0.2
1 / 3
s ~ x
s + "!"
"a" * 3
s[0]
s[-1]
s[1:4]
s[::-1]
s[:-3]
l[1:]
l[::-1]
l[5:1:-2]
l[-1]
l[10]
d
l
d.a
d['a'].z[1]
d.a.z
d.zz
d.zz is defined
nope
nope is defined
nope is undefined
none
none is none
yes
not yes
not nope
x > 3 and x < 10
1 < x < 3
1 < x <= 5
x in l
3 in l
3 not in l
'b' in d
'ell' in s
x if x > 3 else 'no'
x if x > 30 else 'no'
x if x > 30
s|upper
s|lower
s|length
l|length
d|length
l|sort
l|sort(reverse=true)
l|first
l|last
l|max
l|min
l|sum
l|join(', ')
l|join
d|tojson
d|tojson(indent=2)
tools|tojson(indent=4)
messages|tojson
s|replace('l','L')
s|replace('l','L',1)
s.replace('l','L')
s.split(', ')
s.split(',')[0]
s.split()
"a b  c".split(' ')
"a b  c".split()
"a,b,c".split(',',1)
"a,b,c".rsplit(',',1)
s.startswith('Hell')
s.endswith('d')
s.endswith(('x','d'))
s.strip('Hd')
"  x ".strip()
"  x "|trim
s.find('W')
s.upper()
s.title()
"hello world"|title
"hello world"|capitalize
"a\nb\nc"|indent(2)
"a\nb\nc"|indent(2, true)
"a\n\nc"|indent
d|items|list
d.keys()|list
d.values()|list
d.get('b')
d.get('q')
d.get('q', 7)
d|dictsort
messages|map(attribute='role')|list
messages|map(attribute='role')|join(',')
messages|selectattr('role','equalto','user')|list|length
messages|rejectattr('role','equalto','user')|map(attribute='role')|list
messages|selectattr('tool_calls')|list|length
messages|selectattr('tool_calls','defined')|list|length
l|select('odd')|list
l|reject('odd')|list
l|map('string')|list
[1,1,2]|unique|list
x is odd
x is even
x is divisibleby 5
x is divisibleby(3)
x is number
f is number
f is float
x is integer
yes is integer
yes is number
yes is boolean
yes is true
s is string
d is mapping
l is sequence
s is sequence
d is iterable
l is string
x is eq 5
x is not none
not x is none
x is in [5]
"3"|int
"3.7"|int
"x"|int
"x"|int(9)
"3.5"|float
3.7|int
3.14159|round(2)
2.5|round
"%s" | length
nope|default('q')
e|default('q')
e|default('q', true)
nope|d('z')|upper
none|default('q')
range(3)|list
range(1,10,3)|list
[1,2]+[3]
(1,2)
[]
{}
{'a':1}.a
{'a': [1, {'b': 2}]}
"it's"
['it\'s', "q\"q", 'b\\n']
"a" "b"
"tab\there\x41\u00e9"
namespace(a=1).a
dict(a=1).a
l|reverse|list
s|reverse
s|first
"abc"|list
true
True
None
false or 'x'
'' or 'y'
0 and 1
x == 5.0
'1' == 1
l == [3,1,2]
x|string + 'q'
x|abs
(-x)|abs
-x|abs
1 + 2 * 3 - 4 / 2
"a" ~ 1 + 2
1 ~ 2 * 3
s|length > 3
not s|length > 3
messages[0]['content']
messages[0].content|trim
messages[-1].content.split('</think>')[-1].lstrip('\n')
messages[1:]|length
messages[::-1][0].role
messages[2].tool_calls[0].function.arguments|tojson
messages[2].tool_calls[0].function.arguments.items()|list
"abc"[1]
"héé"[1]
"héé"|length
"x".join(['a','b'])
s.count('l')
"12".isdigit()
loop is defined
l is defined and l
s == "Hello, World" and x != 4
nope.attr
nope + 1
nope()
l.append(4)
s|nofilter
x is notest
raise_exception('boom')
"abc" % 1
1 // 0
x[0]
d < 1
"a" < "b"
[1,2] < [1,3]
"A"|sort
['b','A','c']|sort
['b','A','c']|sort(case_sensitive=true)
['b','A','a']|unique|list
none|string
none ~ ''
yes ~ ''
f ~ ''
nope ~ ''
{"k": "é\u2028<>&'"}|tojson
"é'\"\n\t\\/"|tojson
1.0|tojson
[true,none,nope is defined]|tojson
d|tojson(sort_keys=true)
d|tojson(separators=(',',':'))
"abc"|wordcount
" a b "|trim|length
"abc".removeprefix('a')
"line1\nline2".splitlines()
"a".b is defined
s.nomethod is defined
messages[0].get('content')|trim
(l|sort)[0]
l|sort|first
[l[0], l[1]]|sum
1 if yes
"yes" if yes and not none else "no"
[1,2,3][-2:]
"%s"
"{{"
'}}'
"{%"
{'a':{'b':{}}}
{"x":1}["x"]
d["b"]
d.b + 1 | string
x is sameas 5
none is sameas none
"a" in ["a"] and "b" not in ["a"]
[[1,2],[3,4]]|map('first')|list
[[1,2],[3,4]]|map('join','-')|list
messages|map(attribute='n', default=0)|list
s|string|safe
"ab"|upper|lower
d.a['z'][0]
"abc"[5:]|length
"abc"[10]|default('u')
(1)|string
()|length
[1,]|length
(1,)|length'''.split("\n")

TEMPLATES = ['''{% for m in messages %}{{ loop.index }}:{{ loop.first }}{{ loop.last }}{{ m.role }} {{ loop.revindex0 }}
{% endfor %}''',
r'''{% for m in messages -%}
   {{ m.role }}
{%- endfor %}''',
'''  {% if x %}
a
  {% else %}
b
  {% endif %}
c
''','''{%- if x -%}
 a {{ x }}
{%- endif +%}
 z''','''a
  {# comment #}
b {# c2 #} d
  {#- c3 -#}
e''','''{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% if m.role == 'user' %}{% set ns.found = true %}{% break %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }}''',
'''{% set q = 1 %}{% for i in l %}{% set q = i %}{% endfor %}{{ q }}''',
'''{% set q = 1 %}{% if yes %}{% set q = 2 %}{% endif %}{{ q }}''',
'''{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = (1, 2) %}{{ t }}''',
'''{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}''','''{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}''',
'''{% for i in l if i > 1 %}{{ loop.length }}{{ i }},{% else %}none{% endfor %}''','''{% for i in e %}{{ i }}{% else %}none{% endfor %}''',
'''{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}''',
'''{% macro m(a, b=2, c=3) %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m('x', 'y') }}''',
'''{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}''',
'''{% macro m() %}{{ x }}{{ y }}{% endmacro %}{% set y = 3 %}{{ m() }}''',
'''{% set c %}abc {{ x }}{% endset %}{{ c|upper }}''','''{% set c | upper %}abc {{ x }}{% endset %}{{ c }}''',
'''{% filter upper %}abc {{ x }}{% endfilter %}''','''{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in {{ x }}{% endcall %}''',
'''{% generation %}abc{% endgeneration %}''','''{% for a in [1,2] %}{% for b in [3,4] %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}''',
'''{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a','b') }}{% endfor %}''',
'''{{ x }}
''','''{{ x }}

''','''{% if x %}
{{ x }}
{% endif %}
''','''{% if a is not defined %}{% set a = "q" %}{% endif %}{{ a }}''','''line1\r\nline2\r\n{{ x }}''',
'''{{- x -}}   y   {{- s }}''','''{%+ if x %} y{% endif %}''','''   {%+ if x %} y{% endif %}''','''   {% if x +%}
 y{% endif %}''','''{{ "a\\nb" }}''','''{% if x %}{% elif y %}{% endif %}''','''{% include "x" %}''','''{% if %}''','''{{ x''','''{% for %}''','''{{ x }} {% endif %}''',
'''{% macro r(n) %}{{ r(n) }}{% endmacro %}{{ r(3) }}''','''{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}''' if False else 'ok',
    # Conversations as models have them: tools, reasoning that is cut, a first system message.
    r"""{%- if messages[0].role == 'system' %}
    {%- set first = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set first = 'none' %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token + '[SYS]' + first + '[/SYS]\n' }}
{%- if tools is defined and tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) + '\n' }}
        {{- tool.function.name ~ ': ' ~ (tool.function.parameters | tojson) }}
    {%- endfor %}
{%- endif %}
{%- set ns = namespace(last=rest | length - 1, done=false) %}
{%- for m in rest[::-1] %}
    {%- if m.role == 'user' and m.content is string and not m.content.startswith('<t>') and not ns.done %}
        {%- set ns.done = true %}
        {%- set ns.last = (rest | length - 1) - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for m in rest %}
    {%- if m.role == 'assistant' and m.tool_calls %}
        {%- for call in m.tool_calls %}
            {{- '\n<call>{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
            {{- '}</call>' }}
        {%- endfor %}
    {%- elif m.role == 'tool' or (m.role == 'system' and not loop.first) %}
        {{- '\n<t>' + m.content + '</t>' }}
    {%- else %}
        {%- set text = m.content.split('</think>')[-1].lstrip('\n') if '</think>' in m.content else m.content %}
        {{- '\n<|' + m.role + '|>' + text.strip() + eos_token }}
    {%- endif %}
    {%- if loop.index0 == ns.last %}{{ '*' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '\n<|assistant|>' }}
{%- endif %}
""",
    """{% for m in messages %}{% if loop.first and m['role'] != 'system' %}{{ raise_exception('no system') }}{% endif %}{{ '[' + m['role'] + ']' + '\n' + m['content'] + '\n' }}{% endfor %}""",
    """{% if not messages %}x{% else %}{{ raise_exception('bad ' ~ messages|length) }}{% endif %}""",
]


def render(template):
    try:
        return _compile_jinja_template(template).render(**VARIABLES)
    except Exception:
        return None


rows = [{"variables": VARIABLES}]
for template in ["{{ %s }}" % e for e in EXPRESSIONS] + TEMPLATES:
    rows.append({"template": template, "text": render(template)})
pathlib.Path(__file__).with_name("chat_templates.txt").write_text("".join(json.dumps(r) + "\n" for r in rows))
