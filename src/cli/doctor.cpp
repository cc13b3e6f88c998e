#include "cli/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "doctor/probe.h"

namespace sinew {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPeersMax = 64;

Json checks_json(const std::vector<Check>& checks) {
  Json json = Json::array();
  for (const Check& check : checks)
    json.push_back({{"id", check.id},
                    {"state", check_state_name(check.state)},
                    {"reason", check.reason},
                    {"remedy", check.remedy}});
  return json;
}

}  // namespace

Result<bool> doctor_command(const DoctorFlags& flags) {
  if (flags.probe_rdma) {
    fmt::print("{}", rdma_report());
    return true;
  }
  if (flags.peers.size() > kPeersMax)
    return fail(ErrorCode::kUsage, "--peers names {} machines, at most {}", flags.peers.size(),
                kPeersMax);
  const MachineFacts facts = probe_machine({flags.model, SINEW_VERSION, flags.ggml});
  std::vector<Check> checks = judge_machine(facts);
  for (Check& check : probe_peers(flags.peers)) checks.push_back(std::move(check));
  if (flags.json) {
    const Json report{{"schema", 1},
                      {"ok", healthy(checks)},
                      {"host", facts.host},
                      {"checks", checks_json(checks)}};
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
    return healthy(checks);
  }
  for (const Check& check : checks) {
    fmt::print("{:<4}  {:<12} {}\n", check_state_name(check.state), check.id, check.reason);
    if (!check.remedy.empty()) fmt::print("{:<19}mend: {}\n", "", check.remedy);
  }
  fmt::print("{}", draw_cables(facts));
  return healthy(checks);
}

}  // namespace sinew
