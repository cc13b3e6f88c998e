#include "support/oracle.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/assert.h"
#include "support/process.h"

namespace sinew::test {
namespace {

constexpr const char* kProgram = SINEW_ORACLE_PROGRAM;

void append_count(std::string& bytes, std::size_t count) {
  const auto value = static_cast<std::uint32_t>(count);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool take_count(std::string_view& bytes, std::uint32_t& count) {
  if (bytes.size() < sizeof count) return false;
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes.remove_prefix(sizeof count);
  return true;
}

LogitsRequest request_of(const std::string& model, std::span<const TokenId> prompt, int chunk) {
  LogitsRequest request;
  request.model = model;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.chunk = chunk;
  return request;
}

}  // namespace

bool Oracle::available() {
  return ::access(kProgram, X_OK) == 0;
}

const char* Oracle::program() {
  return kProgram;
}

Result<std::vector<std::vector<TokenId>>> Oracle::tokenize(const std::string& model,
                                                           std::span<const std::string> texts,
                                                           bool parse_special, bool add_bos) {
  std::string input;
  append_count(input, texts.size());
  for (const std::string& text : texts) {
    append_count(input, text.size());
    input += text;
  }
  std::vector<std::string> arguments{kProgram, "tokenize", model};
  if (parse_special) arguments.emplace_back("--special");
  if (add_bos) arguments.emplace_back("--bos");
  SINEW_ASSIGN(const ProcessOutput output,
               run_checked(arguments, input, std::chrono::seconds(120)));

  std::string_view bytes = output.out;
  std::vector<std::vector<TokenId>> lists;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::uint32_t count = 0;
    if (!take_count(bytes, count) || bytes.size() / sizeof(TokenId) < count)
      return fail(ErrorCode::kInternal, "the oracle's answer ends within text {}", i);
    std::vector<TokenId>& list = lists.emplace_back(count);
    if (count > 0) std::memcpy(list.data(), bytes.data(), count * sizeof(TokenId));
    bytes.remove_prefix(count * sizeof(TokenId));
  }
  return lists;
}

Result<std::vector<float>> Oracle::logits(const std::string& model, std::span<const TokenId> prompt,
                                          int chunk) {
  SINEW_ASSIGN(LogitsAnswer answer, run(request_of(model, prompt, chunk)));
  return std::move(answer.logits);
}

Result<std::vector<float>> Oracle::last_logits(const std::string& model,
                                               std::span<const TokenId> prompt, int positions,
                                               int chunk) {
  LogitsRequest request = request_of(model, prompt, chunk);
  request.more = {"--last", std::to_string(positions)};
  SINEW_ASSIGN(LogitsAnswer answer, run(request));
  return std::move(answer.logits);
}

Result<std::vector<TokenId>> Oracle::greedy(const std::string& model,
                                            std::span<const TokenId> prompt, int count) {
  LogitsRequest request = request_of(model, prompt, 512);
  request.generate = count;
  SINEW_ASSIGN(const LogitsAnswer answer, run(request));
  std::vector<TokenId> ids;
  for (const GreedyToken& token : answer.greedy) ids.push_back(token.id);
  return ids;
}

Result<double> Oracle::perplexity(const std::string& model, std::span<const TokenId> tokens,
                                  std::size_t window, const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  const std::string file = folder.file("tokens");
  SINEW_TRY(write_file(file, {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()}));
  std::vector<std::string> arguments{kProgram,   "perplexity",          model, "--tokens", file,
                                     "--window", std::to_string(window)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  SINEW_ASSIGN(const ProcessOutput output, run_checked(arguments, {}, std::chrono::seconds(600)));
  constexpr std::string_view kKey = "\"perplexity\": ";
  const std::size_t at = output.out.find(kKey);
  if (at == std::string::npos)
    return fail(ErrorCode::kInternal, "the oracle said no perplexity: {}", output.out);
  return std::strtod(output.out.c_str() + at + kKey.size(), nullptr);
}

Result<double> perplexity_by_logits(const std::string& program, const LogitsRequest& request,
                                    std::size_t window) {
  double sum = 0;
  std::size_t counted = 0;
  for (std::size_t begin = 0; begin + 1 < request.prompt.size(); begin += window) {
    const std::size_t size = std::min(window, request.prompt.size() - begin);
    const auto part = std::span(request.prompt).subspan(begin, size);
    LogitsRequest piece = request;
    piece.prompt.assign(part.begin(), part.end());
    piece.all = true;
    SINEW_ASSIGN(const LogitsAnswer answer, run_logits(program, piece));
    const std::size_t width = answer.logits.size() / size;
    for (std::size_t i = 0; i + 1 < size; ++i, ++counted) {
      const auto row = std::span(answer.logits).subspan(i * width, width);
      const double top = *std::max_element(row.begin(), row.end());
      double total = 0;
      for (const float x : row) total += std::exp(double{x} - top);
      const auto next = static_cast<std::size_t>(part[i + 1]);
      if (next >= width) return fail(ErrorCode::kInternal, "token {} has no logit", next);
      sum += top + std::log(total) - double{row[next]};
    }
  }
  if (counted == 0) return fail(ErrorCode::kInternal, "one token alone predicts nothing");
  return std::exp(sum / static_cast<double>(counted));
}

Result<LogitsAnswer> Oracle::run(const LogitsRequest& request) {
  return run_logits(kProgram, request);
}

}  // namespace sinew::test
