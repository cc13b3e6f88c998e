#include "doctor/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/process.h"

namespace sinew {
namespace {

std::string recorded(const std::string& name) {
  const auto text = test::read_file(SINEW_SOURCE_DIR "/tests/unit/doctor/data/" + name);
  EXPECT_TRUE(text) << name;
  return text.value_or("");
}

TEST(DoctorParse, ThunderboltTellsMacsFromDisksAndFreePorts) {
  const auto ports = parse_thunderbolt(recorded("thunderbolt.json"));
  ASSERT_EQ(ports.size(), 3U);
  EXPECT_FALSE(ports[0].connected);
  EXPECT_EQ(ports[0].gbps, 120);
  EXPECT_EQ(ports[1].peer_domain, "BBBBBBBB-0000-0000-0000-000000000001");
  EXPECT_EQ(ports[1].gbps, 80);
  EXPECT_TRUE(ports[2].connected);
  EXPECT_EQ(ports[2].peer_domain, "");
}

TEST(DoctorParse, ThunderboltSurvivesWhatIsNoReport) {
  for (const char* text : {"", "[]", "{\"SPThunderboltDataType\":[1,{\"receptacle_1_tag\":{}}]}",
                           "{\"SPThunderboltDataType\":"})
    EXPECT_LE(parse_thunderbolt(text).size(), 1U) << text;
}

TEST(DoctorParse, IfconfigGivesAddressesMtuAndBridgeMembers) {
  const auto found = parse_ifconfig(recorded("ifconfig.out"));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1].name, "en2");
  EXPECT_TRUE(found[1].up);
  EXPECT_EQ(found[1].mtu, 1500);
  EXPECT_THAT(found[1].addresses, testing::ElementsAre("10.77.12.1"));
  EXPECT_THAT(found[2].members, testing::ElementsAre("en3", "en4"));
}

TEST(DoctorParse, IpAddrGivesIpv4AddressesOfInterfacesThatAreUp) {
  const auto found = parse_ip_addr(
      R"([{"ifname":"eth0","flags":["UP","LOWER_UP"],"mtu":9000,"addr_info":[)"
      R"({"family":"inet","local":"10.0.0.2"},{"family":"inet6","local":"fe80::1"}]}])");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].up);
  EXPECT_EQ(found[0].mtu, 9000);
  EXPECT_THAT(found[0].addresses, testing::ElementsAre("10.0.0.2"));
  EXPECT_TRUE(parse_ip_addr("{").empty());
}

TEST(DoctorParse, SmallToolsOfMacs) {
  EXPECT_EQ(parse_rdma_ctl("enabled\n"), true);
  EXPECT_EQ(parse_rdma_ctl("disabled\n"), false);
  EXPECT_EQ(parse_rdma_ctl("usage"), std::nullopt);
  EXPECT_EQ(parse_pmset("System-wide power settings:\nCurrently in use:\n standby 0\n"
                        " sleep                10 (sleep prevented by caffeinate)\n"),
            10);
  EXPECT_EQ(
      parse_sw_vers("ProductName:\t\tmacOS\nProductVersion:\t\t26.2\nBuildVersion:\t\t25C56\n"),
      "26.2 (25C56)");
  EXPECT_EQ(parse_sysctl("hw.memsize: 549755813888\n").at("hw.memsize"), 549755813888);
}

TEST(DoctorParse, FilesOfLinux) {
  EXPECT_EQ(parse_meminfo("MemTotal:   100 kB\nMemFree: 5 kB\n", "MemFree"), 5U * 1024);
  EXPECT_EQ(parse_meminfo("MemTotal: x kB\n", "MemTotal"), std::nullopt);
  EXPECT_EQ(parse_memory_limit("max\n"), std::nullopt);
  EXPECT_EQ(parse_memory_limit("1048576\n"), 1048576U);
  EXPECT_EQ(parse_memory_limit("9223372036854771712\n"), std::nullopt);
  EXPECT_TRUE(parse_nft("chain input { type filter hook input priority 0; policy drop; }"));
  EXPECT_FALSE(parse_nft("chain input { policy accept; }"));
}

TEST(DoctorParse, RanksWithoutASupervisorAreLeftOvers) {
  const auto found = parse_processes(
      "10 1 /usr/bin/sinew run m.gguf\n11 10 /usr/bin/sinew rank\n12 1 sinew rank\n"
      "13 1 vi sinew rank\n14 1 notsinew rank\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pid, 12);
}

TEST(DoctorParse, RdmaReportGivesStateOrTrouble) {
  const auto found = parse_rdma_report(
      "rdma_en2 active\nrdma_en3 down\nrdma_en4 trouble no protection domain\nverbs: no library\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_TRUE(found[0].active);
  EXPECT_FALSE(found[1].active);
  EXPECT_EQ(found[2].trouble, "no protection domain");
}

}  // namespace
}  // namespace sinew
