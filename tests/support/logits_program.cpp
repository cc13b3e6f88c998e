#include "support/logits_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "base/assert.h"
#include "support/process.h"

namespace sinew::test {
namespace {

std::vector<double> log_softmax(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - top);
  std::vector<double> out;
  out.reserve(logits.size());
  for (const float x : logits) out.push_back(double{x} - top - std::log(sum));
  return out;
}

}  // namespace

Result<LogitsAnswer> run_logits(const std::string& program, const LogitsRequest& request) {
  const TemporaryFolder folder;
  const std::string tokens = folder.file("tokens");
  const std::string out = folder.file("logits");
  const std::string ids = folder.file("ids");
  SINEW_TRY(write_file(tokens, {reinterpret_cast<const char*>(request.prompt.data()),
                                request.prompt.size() * sizeof(TokenId)}));
  const int needed = static_cast<int>(request.prompt.size()) + request.generate;
  std::vector<std::string> arguments{
      program,
      "logits",
      request.model,
      "--tokens",
      tokens,
      "--out",
      out,
      "--ctx",
      std::to_string(request.context > 0 ? request.context : needed + 1),
      "--chunk",
      std::to_string(request.chunk),
      "--threads",
      std::to_string(request.threads)};
  if (request.all) arguments.emplace_back("--all");
  if (request.generate > 0)
    arguments.insert(arguments.end(),
                     {"--generate", std::to_string(request.generate), "--ids", ids});
  arguments.insert(arguments.end(), request.more.begin(), request.more.end());
  SINEW_TRY(run_checked(arguments, {}, request.limit));

  LogitsAnswer answer;
  SINEW_ASSIGN(const std::string raw, read_file(out));
  if (raw.empty() || raw.size() % sizeof(float) != 0)
    return fail(ErrorCode::kInternal, "{} wrote {} bytes of logits", program, raw.size());
  answer.logits.resize(raw.size() / sizeof(float));
  std::memcpy(answer.logits.data(), raw.data(), raw.size());
  for (const float x : answer.logits)
    if (!std::isfinite(x)) return fail(ErrorCode::kInternal, "{}: a logit is {}", program, x);
  if (request.generate > 0) {
    SINEW_ASSIGN(const std::string text, read_file(ids));
    std::istringstream lines(text);
    for (GreedyToken token; lines >> token.id >> token.gap;) answer.greedy.push_back(token);
    if (answer.greedy.size() != static_cast<std::size_t>(request.generate))
      return fail(ErrorCode::kInternal, "{} wrote {} of {} greedy tokens", program,
                  answer.greedy.size(), request.generate);
  }
  return answer;
}

double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  SINEW_ASSERT(!reference.empty() && reference.size() == other.size());
  const std::vector<double> p = log_softmax(reference);
  const std::vector<double> q = log_softmax(other);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

std::size_t arg_max(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double best_gap(std::span<const float> logits) {
  SINEW_ASSERT(logits.size() >= 2);
  const std::size_t best = arg_max(logits);
  float second = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (i != best) second = std::max(second, logits[i]);
  return double{logits[best]} - double{second};
}

}  // namespace sinew::test
