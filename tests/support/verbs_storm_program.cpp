// The random-fault run at any length: verbs_storm MESSAGES [SEED [apple|linux [RANKS [CABLES]]]]
// Exit status 1 if a sum was wrong, a rank hung or a failure named nobody.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/verbs_storm.h"

int main(int argc, char** argv) {
  using namespace sinew::testing;
  if (argc < 2) {
    std::fprintf(stderr, "usage: verbs_storm MESSAGES [SEED [apple|linux [RANKS [CABLES]]]]\n");
    return 2;
  }
  const auto number = [&](int at, unsigned long long otherwise) {
    return argc > at ? std::strtoull(argv[at], nullptr, 10) : otherwise;
  };
  const FakeStack stack =
      argc > 3 && std::string_view(argv[3]) == "linux" ? FakeStack::kLinux : FakeStack::kApple;
  FakeFaults faults;
  faults.seed = static_cast<std::uint32_t>(number(2, 1));
  faults.loss = faults.corrupt = 20;
  faults.duplicate = 50;
  faults.late = 2000;
  const StormReport report = storm(stack, static_cast<int>(number(4, 3)),
                                   static_cast<int>(number(5, 2)), number(1, 0), faults);
  std::printf(
      "messages %llu, sums %llu, epochs %llu\n", static_cast<unsigned long long>(report.messages),
      static_cast<unsigned long long>(report.sums), static_cast<unsigned long long>(report.epochs));
  std::printf("faults: lost %llu, damaged %llu, repeated %llu, late %llu\n",
              static_cast<unsigned long long>(report.counts.lost),
              static_cast<unsigned long long>(report.counts.corrupted),
              static_cast<unsigned long long>(report.counts.duplicated),
              static_cast<unsigned long long>(report.counts.late));
  for (const auto& [code, count] : report.failures)
    std::printf("epochs ended by %s: %llu\n", code.c_str(), static_cast<unsigned long long>(count));
  std::printf("%s\n", report.problem.empty() ? "no problem" : report.problem.c_str());
  return report.problem.empty() ? 0 : 1;
}
