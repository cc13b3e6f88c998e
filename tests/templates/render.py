"""render.py JOBS OUT : every template of JOBS with every conversation, through Jinja itself, set up as Hugging Face
transformers sets it up for chat templates. OUT gets one JSON object a line: template, case, text or error."""
import datetime
import json
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import SandboxedEnvironment


class Refusal(Exception):
    """The template called raise_exception."""


class Generation(Extension):
    """{% generation %} marks what a model is trained on; it renders as its content."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def refuse(message):
    raise Refusal(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(now):
    # transformers' sandbox also forbids changing lists; the Kimi templates that come with llama.cpp append to one.
    result = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    result.filters["tojson"] = to_json
    result.filters["from_json"] = json.loads  # not of transformers: templates that come with llama.cpp have it
    result.globals["raise_exception"] = refuse
    result.globals["strftime_now"] = now.strftime
    return result


def render(template, variables):
    try:
        return {"text": template.render(**variables)}
    except Refusal as refusal:
        return {"error": str(refusal), "refusal": True}
    except Exception as error:  # whatever a template can do wrong
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    with open(sys.argv[1], encoding="utf-8") as stream:
        jobs = json.load(stream)
    jinja = environment(datetime.datetime.fromisoformat(jobs["now"]))
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        for job in jobs["templates"]:
            with open(job["file"], encoding="utf-8", newline="") as stream:
                source = stream.read()
            template, broken = None, None
            try:
                template = jinja.from_string(source)
            except jinja2.TemplateSyntaxError as error:
                broken = {"error": f"line {error.lineno}: {error.message}", "syntax": True}
            for case in jobs["cases"]:
                variables = {"bos_token": job["bos"], "eos_token": job["eos"], **case["variables"]}
                result = broken or render(template, variables)
                out.write(json.dumps({"template": job["name"], "case": case["name"], **result}) + "\n")


main()
