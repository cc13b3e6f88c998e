#include "doctor/judge.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sinew {
namespace {

Check check_of(const MachineFacts& facts, const std::string& id) {
  const auto checks = judge_machine(facts);
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.id == id; });
  EXPECT_NE(found, checks.end()) << id;
  return found == checks.end() ? Check{} : *found;
}

MachineFacts sound(const char* system) {
  MachineFacts facts;
  facts.system = system;
  facts.os_build = "1";
  facts.memory_bytes = 64ULL << 30;
  facts.available_bytes = 32ULL << 30;
  facts.interfaces = {{"en2", true, 9000, {"10.77.12.1"}, {}}};
  return facts;
}

ModelFacts model_of(std::uint64_t weight_bytes, std::uint64_t cache_bytes) {
  ModelFacts model;
  model.weight_bytes = weight_bytes;
  model.cache_bytes = cache_bytes;
  return model;
}

TEST(DoctorJudge, ASoundMachineNeedsNoRemedy) {
  for (const char* system : {"Linux", "macOS"}) {
    const auto checks = judge_machine(sound(system));
    EXPECT_TRUE(healthy(checks));
    for (const Check& check : checks) EXPECT_EQ(check.remedy, "") << system << " " << check.id;
  }
}

TEST(DoctorJudge, AModelThatDoesNotFitIsRefusedWithItsBytes) {
  MachineFacts facts = sound("Linux");
  facts.model = model_of(31ULL << 30, 2ULL << 30);
  EXPECT_EQ(check_of(facts, "memory").state, CheckState::kFail);
  facts.model->cache_bytes = 0;
  EXPECT_EQ(check_of(facts, "memory").state, CheckState::kOk);
  facts.memory_limit_bytes = 30ULL << 30;
  EXPECT_EQ(check_of(facts, "memory").state, CheckState::kFail);
}

TEST(DoctorJudge, WiredLimitOfMacsIsHeldAgainstTheModel) {
  MachineFacts facts = sound("macOS");
  facts.wired_limit_bytes = 16ULL << 30;
  facts.model = model_of(20ULL << 30, 0);
  const Check check = check_of(facts, "wired");
  EXPECT_EQ(check.state, CheckState::kFail);
  EXPECT_EQ(check.remedy, "sudo sysctl iogpu.wired_limit_mb=21504");
}

TEST(DoctorJudge, LowMemlockFailsOnlyWhereThereIsRdma) {
  MachineFacts facts = sound("Linux");
  facts.locked_limit_bytes = 64u << 10;
  EXPECT_EQ(check_of(facts, "memlock").state, CheckState::kWarn);
  facts.rdma = {{"mlx5_0", true, ""}};
  EXPECT_EQ(check_of(facts, "memlock").state, CheckState::kFail);
  facts.locked_limit_bytes = 8u << 20;  // the usual limit holds the default slots
  EXPECT_EQ(check_of(facts, "memlock").state, CheckState::kWarn);
}

TEST(DoctorJudge, RdmaThatDoesNotOpenIsAFaultWhateverTheFlagSays) {
  MachineFacts facts = sound("macOS");
  facts.rdma_enabled = true;
  EXPECT_EQ(check_of(facts, "rdma").state, CheckState::kWarn);
  facts.rdma = {{"rdma_en2", false, "no protection domain"}};
  EXPECT_EQ(check_of(facts, "rdma").state, CheckState::kFail);
  facts.rdma = {{"rdma_en2", true, ""}};
  EXPECT_EQ(check_of(facts, "rdma").state, CheckState::kOk);
}

TEST(DoctorJudge, BridgeMembersSlowCablesAndSleepAreNamed) {
  MachineFacts facts = sound("macOS");
  facts.interfaces.push_back({"bridge0", false, 1500, {}, {"en3"}});
  facts.thunderbolt = {{"1", "a", "b", "Mac Studio", 40, true}};
  facts.sleep_minutes = 10;
  EXPECT_EQ(check_of(facts, "bridge").state, CheckState::kFail);
  EXPECT_EQ(check_of(facts, "thunderbolt").state, CheckState::kWarn);
  EXPECT_EQ(check_of(facts, "sleep").remedy, "sudo pmset -a sleep 0");
  EXPECT_EQ(draw_cables(facts), "port 1 === 40 Gb/s === Mac Studio\n");
}

TEST(DoctorJudge, LeftoversAreNamedWithTheCommandThatEndsThem) {
  MachineFacts facts = sound("Linux");
  facts.leftovers = {{12, 1}, {13, 1}};
  EXPECT_EQ(check_of(facts, "leftovers").remedy, "kill 12 13");
}

}  // namespace
}  // namespace sinew
