#include "cluster/message.h"

#include <gtest/gtest.h>

#include <random>

namespace sinew {
namespace {

Member member() {
  Member m;
  m.id.bytes.fill(7);
  m.name = "studio-1";
  m.incarnation = 3;
  m.nonce = 99;
  m.version = "0.1.0";
  m.addresses = {{PathKind::kThunderbolt, true, "169.254.1.2", 7000},
                 {PathKind::kWifi, false, "fe80::1", 7000}};
  m.memory_bytes = 1u << 30;
  m.models.resize(2);
  return m;
}

ClusterState state() {
  ClusterState s;
  s.voters = {member().id};
  s.last_epoch = 4;
  ModelState model;
  model.desired.name = "kimi";
  model.desired.needs = {1000, 10, 8, 4};
  model.assignment = Assignment{4, 2, {4}, {{member().id, 3, 0, 8, 1010}}};
  s.models = {model};
  return s;
}

std::vector<ClusterMessage> all_messages() {
  LeaseMessage renew;
  renew.kind = LeaseMessage::Kind::kRenew;
  renew.term = 9;
  renew.value = {9, 12};
  renew.state = state();
  return {BeatMessage{{member(), 5, {{member().id, PathKind::kEthernet}}},
                      {{member().id, 3, 5}},
                      {{member(), 5, {}}}},
          renew,
          CommandMessage{1, NodeCore::LoadModel{state().models[0].desired}},
          CommandMessage{2, NodeCore::UnloadModel{}},
          CommandMessage{3, NodeCore::FailEpoch{{}, 4, member().id, "a rank is late"}},
          CommandReply{4, {}},
          CommandReply{5, fail(ErrorCode::kNoMemory, "it does not fit")},
          LeaveMessage{3}};
}

TEST(ClusterMessage, EveryKindSurvivesTheWire) {
  for (const ClusterMessage& message : all_messages()) {
    const auto bytes = encode_message(message);
    const auto decoded = decode_message(bytes);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->index(), message.index());
    EXPECT_EQ(encode_message(*decoded), bytes);
  }
}

TEST(ClusterMessage, EveryTruncationIsRefused) {
  for (const ClusterMessage& message : all_messages()) {
    const auto bytes = encode_message(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto decoded = decode_message(ByteSpan(bytes).first(size));
      ASSERT_FALSE(decoded) << size;
      EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
    }
  }
}

TEST(ClusterMessage, ChangedBytesAreRefusedOrWithinTheLimits) {
  std::mt19937 random(3);
  for (const ClusterMessage& message : all_messages()) {
    const auto bytes = encode_message(message);
    for (int round = 0; round < 2000; ++round) {
      auto changed = bytes;
      changed[random() % changed.size()] = static_cast<std::byte>(random());
      const auto decoded = decode_message(changed);
      const bool kept = !decoded || encode_message(*decoded).size() == bytes.size();
      EXPECT_TRUE(kept);
    }
  }
}

TEST(ClusterMessage, AnotherVersionIsNamed) {
  auto bytes = encode_message(LeaveMessage{1});
  bytes[4] = std::byte{42};
  const auto decoded = decode_message(bytes);
  ASSERT_FALSE(decoded);
  EXPECT_NE(decoded.error().message.find("version 42"), std::string::npos);
}

TEST(ClusterMessage, NamesWithControlCharactersAreRefused) {
  Member m = member();
  m.name = "a\x1b[2J";
  EXPECT_FALSE(decode_message(encode_message(BeatMessage{{m, 1, {}}, {}, {}})));
}

TEST(ClusterMessage, TheFullestBeatStaysBelowTheLimit) {
  Member m = member();
  m.name.assign(kMemberNameMax, 'n');
  m.version.assign(kMemberNameMax, 'v');
  m.addresses.assign(kMemberAddressesMax,
                     {PathKind::kVpn, false, std::string(kMemberHostMax, 'h'), 1});
  m.models.resize(kMemberModelsMax);
  const MemberNews news{m, 1, std::vector<PeerLink>(kMembersMax)};
  BeatMessage beat{news, std::vector<MemberBeat>(kMembersMax),
                   std::vector<MemberNews>(kNewsMax, news)};
  const auto bytes = encode_message(beat);
  EXPECT_LT(bytes.size(), kClusterMessageBytesMax);
  EXPECT_TRUE(decode_message(bytes));
}

TEST(LeaseRecord, DamageIsSaidAndNothingIsForgotten) {
  const LeaseRecord record{7, member().id, {6, 3}, state()};
  auto bytes = encode_record(record);
  const auto read = decode_record(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->term, 7U);
  EXPECT_EQ(read->state, state());
  bytes.pop_back();
  const auto damaged = decode_record(bytes);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ErrorCode::kInvalidFile);
}

}  // namespace
}  // namespace sinew
