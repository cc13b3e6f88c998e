// sinew-render-templates JOBS OUT : as render.py, through Sinew's ChatTemplate.
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// "2026-03-07T14:05:09", a day of the week and of the year beside it as the calendar says.
std::tm parse_time(const std::string& text) {
  std::tm time{};
  std::istringstream(text) >> std::get_time(&time, "%Y-%m-%dT%H:%M:%S");
  timegm(&time);
  return time;
}

sinew::Result<std::string> render(const sinew::ChatTemplate& chat_template, Json variables,
                                  const std::tm& now) {
  const Json messages = variables.at("messages");
  const Json tools = variables.at("tools");
  const bool prompt = variables.at("add_generation_prompt").get<bool>();
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    variables.erase(name);
  }
  return chat_template.render(messages, tools, prompt, {std::move(variables), now});
}

int run(const char* jobs_path, const char* out_path) {
  const Json jobs = Json::parse(read_file(jobs_path));
  const std::tm now = parse_time(jobs.at("now").get<std::string>());
  std::ofstream out(out_path, std::ios::binary);
  for (const Json& job : jobs.at("templates")) {
    const auto parsed = sinew::ChatTemplate::parse(read_file(job.at("file").get<std::string>()),
                                                   job.at("bos").get<std::string>(),
                                                   job.at("eos").get<std::string>());
    for (const Json& one : jobs.at("cases")) {
      Json row{{"template", job.at("name")}, {"case", one.at("name")}};
      const auto text = parsed ? render(*parsed, one.at("variables"), now)
                               : sinew::Result<std::string>(sinew::fail(parsed.error()));
      if (text) {
        row["text"] = *text;
      } else {
        row["error"] = text.error().message;
      }
      out << row.dump() << '\n';
    }
  }
  out.flush();
  return out ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} JOBS OUT\n", argv[0]);
    return 64;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[1], error.what());
    return 1;
  }
}
