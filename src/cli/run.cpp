#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "host/local_time.h"
#include "host/process.h"
#include "text/answer_stream.h"
#include "text/prompt.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;

// Prints answers of one model to standard output as they come.
class Speaker {
 public:
  Speaker(LoadedModel& model, const RunFlags& flags) : model_(model), flags_(flags) {}

  struct Answer {
    GenerationResult result;
    std::string text;
  };

  Result<std::vector<TokenId>> tokens_of_text(const std::string& text) const {
    return model_.tokenizer.encode(text, {.add_bos = true, .parse_special = false});
  }

  Result<std::vector<TokenId>> tokens_of_chat(const Json& messages) const {
    ChatSettings settings;
    settings.now = local_time();
    SINEW_ASSIGN(const std::string prompt,
                 model_.chat_template->render(messages, Json(), true, settings));
    return encode_chat(model_.tokenizer, prompt);
  }

  Result<Answer> answer(std::vector<TokenId> prompt) const {
    GenerationRequest request;
    request.tokens_max = flags_.tokens_max < 0 ? model_.engine->context() : flags_.tokens_max;
    request.sampling = flags_.sampling.params;
    request.prompt = std::move(prompt);
    if (!flags_.ignore_eos) request.end_tokens = end_of_generation_tokens(model_.tokenizer);
    Answer answer;
    AnswerStream stream(model_.tokenizer, {});
    bool readable = true;
    const auto say = [&](const std::string& text) {
      answer.text += text;
      readable = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                 std::fflush(stdout) == 0;
    };
    const auto wanted = [&] { return readable && interrupts() == 0; };
    auto result = model_.engine->generate(
        request,
        [&](TokenId token) {
          say(stream.add(token).text);
          return wanted();
        },
        wanted);
    say(stream.finish());
    if (!answer.text.empty() && !answer.text.ends_with('\n')) std::fputc('\n', stdout);
    std::fflush(stdout);
    if (!result) return fail(std::move(result).error());
    if (!readable)
      return fail(ErrorCode::kIo, "the answer cannot be written: standard output is closed");
    answer.result = *result;
    return answer;
  }

 private:
  LoadedModel& model_;
  const RunFlags& flags_;
};

Json message(const char* role, const std::string& content) {
  return Json{{"role", role}, {"content", content}};
}

Json opening(const RunFlags& flags) {
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back(message("system", flags.system));
  return messages;
}

Status answer_once(const Speaker& speaker, const LoadedModel& model, const RunFlags& flags) {
  std::vector<TokenId> prompt;
  if (flags.raw || !model.chat_template) {
    if (!flags.raw)
      fmt::print(stderr, "{} has no chat template: the prompt is continued as plain text\n",
                 model.id);
    SINEW_ASSIGN(prompt, speaker.tokens_of_text(flags.prompt));
  } else {
    Json messages = opening(flags);
    messages.push_back(message("user", flags.prompt));
    SINEW_ASSIGN(prompt, speaker.tokens_of_chat(messages));
  }
  SINEW_ASSIGN(const Speaker::Answer answer, speaker.answer(std::move(prompt)));
  if (flags.model.verbose) print_ranks(*model.engine);
  fmt::print(stderr, "{}\n", describe_speed(answer.result));
  if (interrupts() > 0) return fail(ErrorCode::kCancelled, "stopped by a signal");
  return {};
}

Status converse(const Speaker& speaker, const LoadedModel& model, const RunFlags& flags) {
  if (!model.chat_template)
    return fail(ErrorCode::kUsage,
                "{} has no chat template, so there is no conversation with it; give a prompt: "
                "sinew run MODEL PROMPT",
                model.id);
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  if (terminal)
    fmt::print(stderr, "Talk to {}; Ctrl-C stops an answer, Ctrl-D or Ctrl-C at the prompt ends.\n",
               model.id);
  Json messages = opening(flags);
  std::string line;
  while (true) {
    if (terminal) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || interrupts() > 0) break;
    if (line.empty()) continue;
    messages.push_back(message("user", line));
    SINEW_ASSIGN(std::vector<TokenId> prompt, speaker.tokens_of_chat(messages));
    auto answer = speaker.answer(std::move(prompt));
    if (!answer && answer.error().code == ErrorCode::kInvalidRequest) {
      fmt::print(stderr, "{}\nThe conversation starts anew.\n", answer.error().message);
      messages = opening(flags);
      continue;
    }
    if (!answer) return fail(std::move(answer).error());
    messages.push_back(message("assistant", answer->text));
    if (flags.model.verbose) fmt::print(stderr, "{}\n", describe_speed(answer->result));
    forget_interrupts();
  }
  if (terminal) fmt::print(stderr, "\n");
  return {};
}

// Where the bundled model lies beside the program: in the checkout that it was built in, or
// installed.
Result<std::string> bundled_model() {
  constexpr const char* kName = "sinew-tiny-q8_0.gguf";
  SINEW_ASSIGN(const std::string program, own_program());
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  for (const char* relative : {"../../models/tiny", "../share/sinew/models/tiny"}) {
    const std::filesystem::path path = folder / relative / kName;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.lexically_normal().string();
  }
  return fail(ErrorCode::kNotFound,
              "the bundled model {} is not beside the program ({}); run it where ./setup built it",
              kName, folder.string());
}

}  // namespace

Status run_command(const RunFlags& flags) {
  if (Status sampling = check_sampling(flags.sampling.params); !sampling)
    return fail(ErrorCode::kUsage, "{}", sampling.error().message);
  if (flags.tokens_max < -1) return fail(ErrorCode::kUsage, "-n {} is negative", flags.tokens_max);
  watch_interrupts();
  SINEW_ASSIGN(LoadedModel model, LoadedModel::load(flags.model));
  const Speaker speaker(model, flags);
  return flags.has_prompt ? answer_once(speaker, model, flags) : converse(speaker, model, flags);
}

Status demo_command(int ranks) {
  RunFlags flags;
  SINEW_ASSIGN(flags.model.model, bundled_model());
  flags.model.ranks = ranks;
  watch_interrupts();
  SINEW_ASSIGN(LoadedModel model, LoadedModel::load(flags.model));
  fmt::print(stderr, "{}: {} layers, split over {} ranks (processes) on this machine\n",
             model.engine->spec().name, model.engine->spec().layers, ranks);
  const Speaker speaker(model, flags);
  GenerationResult last;
  for (const char* question :
       {"What is Sinew?", "What is 23 + 45?", "Tell me a story about a fox and a lantern."}) {
    fmt::print(stderr, "\n> {}\n", question);
    SINEW_ASSIGN(std::vector<TokenId> prompt,
                 speaker.tokens_of_chat(Json::array({message("user", question)})));
    SINEW_ASSIGN(const Speaker::Answer answer, speaker.answer(std::move(prompt)));
    last = answer.result;
    if (interrupts() > 0) return fail(ErrorCode::kCancelled, "stopped by a signal");
  }
  fmt::print(stderr, "\n");
  print_ranks(*model.engine);
  fmt::print(stderr, "last answer: {}\n", describe_speed(last));
  return {};
}

}  // namespace sinew
