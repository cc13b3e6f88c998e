// A group against a scripted peer: what it sends, and what it makes of everything that can be wrong
// with what it receives. Whole groups over real transports are in tests/unit/transport.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <functional>

#include "collective/frame.h"
#include "collective/mesh_group.h"

namespace sinew {
namespace {

using ::testing::HasSubstr;

const JobId kJob{{11, 22}};
constexpr Epoch kEpoch = 4;

// What passed through a ScriptedLink; outlives it.
struct Script {
  std::deque<std::byte> incoming;  // then: the deadline, or a close
  bool closes = false;
  bool vouches = false;
  std::vector<std::byte> outgoing;
};

class ScriptedLink final : public Link {
 public:
  ScriptedLink(Rank peer, Script& script) : peer_(peer), script_(script) {}

  Rank peer() const override { return peer_; }
  std::string_view kind() const override { return "script"; }
  bool sending() const override { return false; }
  bool vouches() const override { return script_.vouches; }
  Status start_send(std::span<const std::byte> head, std::span<const std::byte> body) override {
    script_.outgoing.insert(script_.outgoing.end(), head.begin(), head.end());
    script_.outgoing.insert(script_.outgoing.end(), body.begin(), body.end());
    return {};
  }
  Status finish_send(Deadline) override { return {}; }
  Status receive(std::span<std::byte> into, Deadline) override {
    if (script_.incoming.size() < into.size()) {
      return fail(Error{script_.closes ? ErrorCode::kPeerLost : ErrorCode::kDeadline,
                        fmt::format("rank {} closed its script link", peer_), peer_});
    }
    std::copy_n(script_.incoming.begin(), into.size(), into.begin());
    script_.incoming.erase(script_.incoming.begin(),
                           script_.incoming.begin() + static_cast<std::ptrdiff_t>(into.size()));
    return {};
  }

 private:
  Rank peer_;
  Script& script_;
};

FrameHeader header_from(Rank source, Operation operation, std::span<const std::byte> payload) {
  FrameHeader header;
  header.operation = operation;
  header.checksummed = operation != Operation::kFault;
  header.source = source;
  header.job = kJob;
  header.epoch = kEpoch;
  header.step = 9;
  header.sequence = 1;
  header.length = payload.size();
  header.checksum = header.checksummed ? payload_checksum(payload) : 0;
  return header;
}

void say(Script& script, const FrameHeader& header, std::span<const std::byte> payload) {
  FrameBytes bytes;
  encode_frame(header, bytes);
  script.incoming.insert(script.incoming.end(), bytes.begin(), bytes.end());
  script.incoming.insert(script.incoming.end(), payload.begin(), payload.end());
}

class GroupTest : public ::testing::Test {
 protected:
  std::unique_ptr<Group> group_of(int size) {
    Links links(static_cast<std::size_t>(size));
    for (Rank peer = 1; peer < size; ++peer) {
      links[static_cast<std::size_t>(peer)] = std::make_unique<ScriptedLink>(peer, scripts_[peer]);
    }
    auto group = make_group({kJob, kEpoch, 0, size}, std::move(links), {});
    group->set_step(9);
    return group;
  }

  // The error of rank 0's all-reduce of four floats in a group of two, after rank 1 has said
  // `header`.
  Error error_for(const FrameHeader& header) {
    say(scripts_[1], header, std::as_bytes(std::span(theirs_)));
    const auto group = group_of(2);
    std::vector<float> data(4, 1.0f);
    const Status status = group->all_reduce_sum(data);
    EXPECT_FALSE(status);
    if (status) return {};
    EXPECT_EQ(status.error().rank, 1) << status.error().message;
    const Status again = group->broadcast(0, {});
    EXPECT_FALSE(again) << "a group with an error is finished";
    return status.error();
  }

  FrameHeader right() const {
    return header_from(1, Operation::kAllReduce, std::as_bytes(std::span(theirs_)));
  }

  std::array<Script, 8> scripts_;
  std::vector<float> theirs_{1.0f, 2.0f, 3.0f, 4.0f};
};

TEST_F(GroupTest, GroupOfOne_NeedsNoLinks) {
  const auto group = make_group({kJob, kEpoch, 0, 1}, {}, {});
  std::vector<float> data{1.0f, 2.0f};
  EXPECT_TRUE(group->all_reduce_sum(data));
  EXPECT_THAT(data, ::testing::ElementsAre(1.0f, 2.0f));
  const std::array<std::size_t, 1> counts{2};
  const std::array<std::byte, 2> mine{std::byte{5}, std::byte{6}};
  std::array<std::byte, 2> gathered{};
  EXPECT_TRUE(group->all_gather(mine, counts, gathered));
  EXPECT_EQ(gathered, mine);
  EXPECT_EQ(group->kind(), "-");
  EXPECT_EQ(group->totals().operations, 2u);
}

TEST_F(GroupTest, RightFrame_IsAdded) {
  say(scripts_[1], right(), std::as_bytes(std::span(theirs_)));
  const auto group = group_of(2);
  std::vector<float> data(4, 1.0f);
  ASSERT_TRUE(group->all_reduce_sum(data));
  EXPECT_THAT(data, ::testing::ElementsAre(2.0f, 3.0f, 4.0f, 5.0f));
  EXPECT_EQ(group->totals().bytes_sent, kFrameBytes + 16);
  EXPECT_EQ(scripts_[1].outgoing.size(), kFrameBytes + 16);
}

TEST_F(GroupTest, WrongFrames_EachGiveTheirError) {
  struct Case {
    const char* expected;
    std::function<void(FrameHeader&)> change;
  };
  const Case cases[] = {
      {"of job", [](FrameHeader& h) { h.job.words[1] ^= 1; }},
      {"epoch 3, expected epoch 4", [](FrameHeader& h) { h.epoch = 3; }},
      {"at step 8, expected step 9", [](FrameHeader& h) { h.step = 8; }},
      {"all-reduce #2 of step 9, expected all-reduce #1", [](FrameHeader& h) { h.sequence = 2; }},
      {"is at two-phase all-reduce #1 of step 9, expected all-reduce",
       [](FrameHeader& h) { h.operation = Operation::kReduceScatter; }},
      {"is at gather #1", [](FrameHeader& h) { h.operation = Operation::kGather; }},
      {"sent 12 bytes, expected 16", [](FrameHeader& h) { h.length = 12; }},
      {"sent 18446744073709551615 bytes", [](FrameHeader& h) { h.length = ~std::uint64_t{0}; }},
      {"a frame of rank 0", [](FrameHeader& h) { h.source = 0; }},
      {"sent piece 3, expected piece 0", [](FrameHeader& h) { h.piece = 3; }},
      {"sent values as bf16, expected f32", [](FrameHeader& h) { h.wire = WireType::kBf16; }},
  };
  for (const Case& wrong : cases) {
    FrameHeader header = right();
    wrong.change(header);
    scripts_ = {};
    const Error error = error_for(header);
    EXPECT_EQ(error.code, ErrorCode::kProtocol);
    EXPECT_THAT(error.message, HasSubstr(wrong.expected));
    EXPECT_THAT(error.message, HasSubstr("(all-reduce #1 of step 9 over script; never heard)"));
  }
}

TEST_F(GroupTest, LinkThatVouches_CarriesShortPayloadsWithoutChecksum) {
  scripts_[1].vouches = true;
  FrameHeader plain = right();
  plain.checksummed = false;
  plain.checksum = 0;
  say(scripts_[1], plain, std::as_bytes(std::span(theirs_)));
  FrameHeader proven = right();
  proven.source = 2;
  say(scripts_[2], proven, std::as_bytes(std::span(theirs_)));
  const auto group = group_of(3);
  std::vector<float> data(4, 1.0f);
  const Status status = group->all_reduce_sum(data);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(data, ::testing::ElementsAre(3.0f, 5.0f, 7.0f, 9.0f));
  const auto to_1 = decode_frame(std::span(scripts_[1].outgoing).first<kFrameBytes>());
  const auto to_2 = decode_frame(std::span(scripts_[2].outgoing).first<kFrameBytes>());
  ASSERT_TRUE(to_1 && to_2);
  EXPECT_FALSE(to_1->checksummed);
  EXPECT_TRUE(to_2->checksummed);
  const std::vector<float> mine(4, 1.0f);
  EXPECT_EQ(to_2->checksum, payload_checksum(std::as_bytes(std::span(mine))));
}

TEST_F(GroupTest, DamagedPayload_IsAnIntegrityErrorOfTheSender) {
  FrameHeader header = right();
  theirs_[2] = 3.5f;
  EXPECT_EQ(error_for(header).code, ErrorCode::kIntegrity);
}

TEST_F(GroupTest, Garbage_IsAProtocolError) {
  scripts_[1].incoming.assign(200, std::byte{0x5a});
  const Error error = error_for(right());
  EXPECT_EQ(error.code, ErrorCode::kProtocol);
  EXPECT_THAT(error.message, HasSubstr("from rank 1: not a frame"));
}

TEST_F(GroupTest, LateRank_IsNamedWithOperationAndStep) {
  say(scripts_[1], right(), std::as_bytes(std::span(theirs_)));
  const auto group = group_of(3);
  std::vector<float> data(4, 1.0f);
  const Status status = group->all_reduce_sum(data);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kDeadline);
  EXPECT_EQ(status.error().rank, 2);
  EXPECT_EQ(status.error().message,
            "rank 2 is late for all-reduce #1 of step 9 (waited 0.0 s over script; never heard)");
}

TEST_F(GroupTest, LateRank_IsNamedWithWhatItWasLastHeardDoing) {
  static Deadline clock_now;
  say(scripts_[1], right(), std::as_bytes(std::span(theirs_)));
  Links links(2);
  links[1] = std::make_unique<ScriptedLink>(1, scripts_[1]);
  GroupOptions options;
  options.now = [] { return clock_now; };
  const auto group = make_group({kJob, kEpoch, 0, 2}, std::move(links), options);
  group->set_step(9);
  std::vector<float> data(4, 1.0f);
  ASSERT_TRUE(group->all_reduce_sum(data));
  clock_now += std::chrono::milliseconds{3100};
  group->set_step(10);
  const Status status = group->all_reduce_sum(data);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "rank 1 is late for all-reduce #2 of step 10 (waited 0.0 s over script; last heard: "
            "all-reduce #1 of step 9, 3.1 s ago)");
}

TEST_F(GroupTest, LostRank_IsNamedWithWhatItWasLastHeardDoing) {
  say(scripts_[1], right(), std::as_bytes(std::span(theirs_)));
  scripts_[1].closes = true;
  const auto group = group_of(2);
  std::vector<float> data(4, 1.0f);
  ASSERT_TRUE(group->all_reduce_sum(data));
  const Status status = group->broadcast(1, std::as_writable_bytes(std::span(data)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(status.error().message,
              HasSubstr("closed its script link (broadcast #2 of step 9 over script; last heard: "
                        "all-reduce #1 of step 9, "));
}

TEST_F(GroupTest, Failure_TellsTheOtherRanksWhoIsToBlame) {
  say(scripts_[1], right(), std::as_bytes(std::span(theirs_)));
  const auto group = group_of(3);
  std::vector<float> data(4, 1.0f);
  ASSERT_FALSE(group->all_reduce_sum(data));
  ASSERT_EQ(scripts_[1].outgoing.size(), kFrameBytes + 16 + kFrameBytes);
  const auto fault = decode_frame(std::span(scripts_[1].outgoing).last<kFrameBytes>());
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->operation, Operation::kFault);
  EXPECT_EQ(fault->subject, 2);
  EXPECT_EQ(scripts_[2].outgoing.size(), kFrameBytes + 16) << "the late rank is not told";
}

TEST_F(GroupTest, FaultFrame_BlamesTheRankItNames) {
  FrameHeader fault = header_from(1, Operation::kFault, {});
  fault.subject = 2;
  fault.step = 8;
  say(scripts_[1], fault, {});
  const auto group = group_of(3);
  std::vector<float> data(4, 1.0f);
  const Status status = group->all_reduce_sum(data);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(status.error().rank, 2);
  EXPECT_THAT(status.error().message,
              HasSubstr("rank 1 gave up operation #1 of step 8 because of rank 2"));
}

TEST_F(GroupTest, FaultFrameAboutARankThatIsNotThere_IsAProtocolError) {
  FrameHeader fault = header_from(1, Operation::kFault, {});
  fault.subject = 7;
  say(scripts_[1], fault, {});
  EXPECT_EQ(error_for(right()).code, ErrorCode::kProtocol);
}

TEST_F(GroupTest, EveryOperation_HasTheNextSequenceNumber) {
  const auto group = group_of(2);
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    FrameHeader header = right();
    header.sequence = sequence;
    say(scripts_[1], header, std::as_bytes(std::span(theirs_)));
    std::vector<float> data(4, 1.0f);
    ASSERT_TRUE(group->all_reduce_sum(data));
  }
  EXPECT_EQ(group->totals().operations, 3u);
}

}  // namespace
}  // namespace sinew
