// How verbs comes up, or does not, and what every rank reads then.
#include <gmock/gmock.h>

#include <cerrno>

#include "unit/transport/verbs_ranks.h"

namespace sinew::testing {
namespace {

using ::testing::HasSubstr;

// All ranks end with the same refusal; the stack is left clean.
void expect_refusal(VerbsRanks& ranks, FakeFabric& fabric,
                    const ::testing::Matcher<std::string>& message) {
  const auto links = ranks.connect();
  for (const auto& one : links) {
    ASSERT_FALSE(one);
    EXPECT_EQ(one.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(one.error().message, message);
    EXPECT_EQ(one.error().message, links[0].error().message) << "ranks disagree";
  }
  EXPECT_EQ(fabric.violations(), 0u) << fabric.first_violation();
  EXPECT_EQ(fabric.leaks(), 0);
}

struct Fault {
  VerbsCall call;
  int error_number;
  const char* remedy;
};

class VerbsFault : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Calls, VerbsFault,
    ::testing::Values(Fault{VerbsCall::kListDevices, ENOSYS, "load the kernel's modules"},
                      Fault{VerbsCall::kOpenDevice, EACCES, "/dev/infiniband/uverbs"},
                      Fault{VerbsCall::kQueryPort, EIO, "names change"},
                      Fault{VerbsCall::kQueryGids, EIO, "names change"},
                      Fault{VerbsCall::kAllocateDomain, ENOMEM, "the port is down or an earlier"},
                      Fault{VerbsCall::kRegisterRegion, ENOMEM, "locked memory"},
                      Fault{VerbsCall::kCreateChannel, EIO, "queues"},
                      Fault{VerbsCall::kCreateCq, ENOMEM, "no memory for queues"},
                      Fault{VerbsCall::kCreateQp, EBUSY, "Thunderbolt has 10"},
                      Fault{VerbsCall::kQueryDepth, EINVAL, "fresh queue pair"},
                      Fault{VerbsCall::kToInit, EINVAL, "fresh queue pair"},
                      Fault{VerbsCall::kToReceive, EINVAL, "make the bridge inactive"},
                      Fault{VerbsCall::kToReceive, 60, "not reachable on this cable"},
                      Fault{VerbsCall::kToReceive, EFAULT, "until the next restart"},
                      Fault{VerbsCall::kToSend, ETIMEDOUT, "not reachable on this cable"},
                      Fault{VerbsCall::kPostReceive, ENOMEM, "the queue is full"},
                      Fault{VerbsCall::kPostSend, EIO, "check the cable"}),
    [](const ::testing::TestParamInfo<Fault>& one) { return std::to_string(one.index); });

TEST_P(VerbsFault, ThatStays_IsRefusedByAllRanksWithTheRemedy) {
  const Fault& fault = GetParam();
  FakeFabric fabric(FakeStack::kApple, 3);
  fabric.fail(1, fault.call, fault.error_number, 60000);
  VerbsRanks ranks(fabric, 3);
  expect_refusal(ranks, fabric,
                 ::testing::AllOf(HasSubstr("rank 1: verbs: "), HasSubstr(fault.remedy),
                                  HasSubstr(std::string(verbs_call_name(fault.call)) + " "),
                                  HasSubstr(fmt::format("errno {} ", fault.error_number))));
}

TEST_P(VerbsFault, ThatPasses_IsOvercomeOrFinal) {
  const Fault& fault = GetParam();
  FakeFabric fabric(FakeStack::kApple, 2);
  fabric.fail(1, fault.call, fault.error_number, 1);
  VerbsRanks ranks(fabric, 2);
  const bool again =
      explain_verbs(fault.call, fault.error_number, "").code != ErrorCode::kUnsupported;
  // Before the first attempt nothing is tried twice.
  const bool scan = fault.call == VerbsCall::kQueryPort || fault.call == VerbsCall::kQueryGids ||
                    fault.call == VerbsCall::kCreateChannel;
  for (const auto& one : ranks.connect()) {
    if (!scan) {
      EXPECT_EQ(one.has_value(), again) << (one ? "" : one.error().message);
    }
  }
  EXPECT_EQ(fabric.leaks(), 0);
}

TEST(VerbsBringUp, DeadDirection_IsFoundByTheWarmUpMessage) {
  FakeFabric fabric(FakeStack::kApple, 2);
  FakeFaults faults;
  faults.loss = 1000000;
  fabric.set_faults(faults);
  VerbsRanks ranks(fabric, 2);
  expect_refusal(ranks, fabric, HasSubstr("no warm-up message came from rank"));
}

TEST(VerbsBringUp, Refusal_BecomesTcpOnlyWhereEveryRankAllowsIt) {
  FakeFabric fabric(FakeStack::kApple, 3);
  fabric.fail(2, VerbsCall::kCreateQp, EBUSY, 60000);
  {
    VerbsRanks ranks(fabric, 3);
    for (VerbsOptions& options : ranks.options) options.fall_back_to_tcp = true;
    auto links = ranks.links();
    EXPECT_EQ(links[0][1]->kind(), "tcp") << "no pair is left on verbs";
    EXPECT_EQ(links[1][2]->kind(), "tcp");
    const std::array<std::byte, 3> message{std::byte{1}};
    ASSERT_TRUE(links[0][1]->start_send(message, {}));
    std::array<std::byte, 3> came{};
    ASSERT_TRUE(links[1][0]->receive(came, in(milliseconds{2000})));
    EXPECT_EQ(came, message);
  }
  VerbsRanks ranks(fabric, 3);
  ranks.options[0].fall_back_to_tcp = true;
  const auto links = ranks.connect();
  for (const auto& one : links) EXPECT_FALSE(one);
}

TEST(VerbsBringUp, MachineWithoutDevices_SaysWhatThatMeans) {
  FakeFabric fabric(FakeStack::kApple, 2);
  fabric.remove_devices();
  VerbsRanks ranks(fabric, 2);
  expect_refusal(ranks, fabric, HasSubstr("no RDMA device: a fake machine without devices"));
}

TEST(VerbsBringUp, MissingLibrary_IsRefusedByAllRanks) {
  FakeFabric fabric(FakeStack::kApple, 2);
  const Result<std::shared_ptr<VerbsProvider>> absent =
      fail(ErrorCode::kUnsupported, "verbs: the library is missing");
  std::vector<TcpListener> listeners;
  std::vector<Endpoint> endpoints;
  for (int rank = 0; rank < 2; ++rank) {
    listeners.push_back(std::move(*TcpListener::bind("127.0.0.1", 0)));
    endpoints.push_back({"127.0.0.1", listeners.back().port()});
  }
  auto one = std::async(std::launch::async, [&] {
    return connect_verbs_links(identity_of(1, 2), absent, {}, listeners[1], endpoints,
                               in(milliseconds{10000}));
  });
  const auto zero = connect_verbs_links(identity_of(0, 2), fabric.provider(0), {}, listeners[0],
                                        endpoints, in(milliseconds{10000}));
  ASSERT_FALSE(zero);
  EXPECT_THAT(zero.error().message, HasSubstr("rank 1: verbs: the library is missing"));
  EXPECT_FALSE(one.get());
}

// The real library, on whatever machine this runs.
TEST(VerbsBringUp, SystemsStack_ListsItsDevicesOrSaysWhatIsMissing) {
  const auto provider = load_system_verbs();
  if (!provider) {
    EXPECT_EQ(provider.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(provider.error().message, HasSubstr("install"));
    return;
  }
  const auto names = (*provider)->device_names();
  ASSERT_TRUE(names) << "errno " << names.error();
  const auto ports = find_verbs_ports(**provider, {}, VerbsGid{});
  if (names->empty()) {
    ASSERT_FALSE(ports);
    EXPECT_THAT(ports.error().message, HasSubstr("this machine has no RDMA device: "));
    EXPECT_THAT(ports.error().message, HasSubstr("--link tcp"));
  }
  EXPECT_FALSE((*provider)->open_device("no such device"));
}

TEST(VerbsBringUp, AddressAtAnotherIndex_IsFound) {
  FakeFabric fabric(FakeStack::kApple, 2);
  fabric.set_gid_index(2);
  auto links = VerbsRanks(fabric, 2).links();
  EXPECT_EQ(links[0][1]->kind(), "verbs");
}

TEST(VerbsBringUp, WrongIndexFromTheUser_IsRefusedWithTheDriversReason) {
  FakeFabric fabric(FakeStack::kApple, 2);
  VerbsRanks ranks(fabric, 2);
  for (VerbsOptions& options : ranks.options) options.gid_index = 0;
  expect_refusal(ranks, fabric, HasSubstr("no RDMA device has the address"));
  for (VerbsOptions& options : ranks.options) options.devices = {"rdma_en2"};
  VerbsRanks again(fabric, 2);
  again.options = ranks.options;
  expect_refusal(again, fabric, HasSubstr("errno 60"));
}

TEST(VerbsBringUp, ReliableConnection_IsRefusedByApplesStackWithTheRemedy) {
  FakeFabric fabric(FakeStack::kApple, 2);
  VerbsRanks ranks(fabric, 2);
  for (VerbsOptions& options : ranks.options) options.qp_type = VerbsQpType::kRc;
  expect_refusal(ranks, fabric, HasSubstr("--verbs-qp uc"));
}

TEST(VerbsBringUp, DifferentOptions_AreRefusedByName) {
  FakeFabric fabric(FakeStack::kLinux, 2);
  {
    VerbsRanks ranks(fabric, 2);
    ranks.options[0].slot_bytes = 4096;
    expect_refusal(ranks, fabric, HasSubstr("--verbs-slot"));
  }
  {
    VerbsRanks ranks(fabric, 2);
    ranks.options[1].qp_type = VerbsQpType::kUc;
    expect_refusal(ranks, fabric, HasSubstr("--verbs-qp"));
  }
  VerbsRanks ranks(fabric, 2);
  ranks.options[1].devices = {"mlx5_7"};
  expect_refusal(ranks, fabric, HasSubstr("there is no device mlx5_7; there are: rxe0"));
}

TEST(VerbsBringUp, PortThatIsDown_IsRefused) {
  FakeFabric fabric(FakeStack::kApple, 2);
  fabric.set_port(1, 0, false);
  VerbsRanks ranks(fabric, 2);
  expect_refusal(ranks, fabric, HasSubstr("rank 1: verbs: the port of rdma_en2 is down"));
}

TEST(VerbsBringUp, NextEpoch_ComesUpAfterAFailedOne) {
  FakeFabric fabric(FakeStack::kApple, 2);
  for (Epoch epoch = 1; epoch < 6; ++epoch) {
    auto links = VerbsRanks(fabric, 2, epoch).links();
    const std::vector<std::byte> message(100000);
    ASSERT_TRUE(links[0][1]->start_send(message, {}));
    std::vector<std::byte> came(10);
    ASSERT_TRUE(links[1][0]->receive(came, in(milliseconds{2000})));
    links[epoch % 2].clear();  // in the middle of the message
  }
  EXPECT_EQ(fabric.leaks(), 0);
  EXPECT_EQ(fabric.violations(), 0u) << fabric.first_violation();
}

VerbsPortOffer port_of(int subnet, int host) {
  VerbsPortOffer offer;
  offer.device = fmt::format("en{}", subnet);
  offer.gid.gid.bytes = {0,
                         0,
                         0,
                         0,
                         0,
                         0,
                         0,
                         0,
                         0,
                         0,
                         0xff,
                         0xff,
                         10,
                         0,
                         static_cast<std::uint8_t>(subnet),
                         static_cast<std::uint8_t>(host)};
  offer.gid.prefix_bits = 120;
  return offer;
}

TEST(VerbsPorts, Cables_ArePairedBySubnetNotByPosition) {
  VerbsOffer lower, higher;
  lower.ports = {port_of(1, 1), port_of(2, 1), port_of(3, 1)};
  higher.ports = {port_of(3, 2), port_of(9, 2), port_of(1, 2)};
  lower.ports[2].on_side_channel = higher.ports[0].on_side_channel = true;
  const auto pairs = pair_verbs_ports(lower, higher);
  ASSERT_TRUE(pairs) << pairs.error().message;
  using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(*pairs, (Pairs{{2, 0}, {0, 2}}));
}

TEST(VerbsPorts, NoCommonSubnet_IsRefused) {
  VerbsOffer lower, higher;
  lower.ports = {port_of(1, 1)};
  higher.ports = {port_of(2, 2)};
  EXPECT_FALSE(pair_verbs_ports(lower, higher));
  lower.named_devices = higher.named_devices = true;
  EXPECT_TRUE(pair_verbs_ports(lower, higher)) << "the user says that they belong together";
}

TEST(VerbsPorts, Offers_SurviveTheWire) {
  VerbsOffer offer;
  offer.qp_type = VerbsQpType::kUc;
  offer.slot_bytes = 8192;
  offer.ports = {port_of(1, 1), port_of(2, 1)};
  offer.ports[1].on_side_channel = true;
  WireWriter writer;
  offer.put(writer);
  WireReader reader(writer.bytes());
  const VerbsOffer came = VerbsOffer::get(reader);
  EXPECT_TRUE(reader.status("offer"));
  ASSERT_EQ(came.ports.size(), 2u);
  EXPECT_EQ(came.ports[1].gid.gid, offer.ports[1].gid.gid);
  EXPECT_EQ(came.ports[1].gid.prefix_bits, 120u);
  EXPECT_TRUE(came.ports[1].on_side_channel);
  EXPECT_EQ(came.slot_bytes, 8192u);
  for (std::size_t size = 0; size < writer.bytes().size(); ++size) {
    WireReader part(writer.bytes().first(size));
    VerbsOffer::get(part);
    EXPECT_FALSE(part.status("offer")) << size;
  }
}

}  // namespace
}  // namespace sinew::testing
