#include "engine/control_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace sinew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConfigureMessage configure() {
  ConfigureMessage message;
  message.model_path = "models/tiny.gguf";
  message.job = JobId{{0x1111222233334444, 0x5555666677778888}};
  message.epoch = 9;
  message.layout = {{3, 1.5, 0.25}, {1, 2}, true};
  message.cache_type = TensorType::kQ8_0;
  message.rank = 2;
  message.link = LinkKind::kVerbs;
  message.verbs.devices = {"rdma_en3", "rdma_en4"};
  message.verbs.gid_index = 2;
  message.verbs.qp_type = VerbsQpType::kUc;
  message.verbs.slot_bytes = 4096;
  message.verbs.fall_back_to_tcp = true;
  message.device = "CPU";
  message.threads = 6;
  message.context = 8192;
  message.slots = 4;
  message.chunk_tokens = 256;
  message.timeout_ms = 1234;
  message.wire = WireType::kBf16;
  message.one_shot_max = 70000;
  message.hashes = HashScope::kSample;
  message.recover = true;
  return message;
}

BeginMessage begin() {
  BeginMessage message;
  message.kind = BeginMessage::Kind::kEvaluateAll;
  message.request.prompt = {5, 6, 7};
  message.request.sampling = {0.5F, 40, 0.9F, 0.05F, 1.1F, 0.2F, 0.3F, 32, 77};
  message.request.tokens_max = 128;
  message.request.end_tokens = {1, 2};
  message.request.first_draw = 11;
  message.request.stepwise = 10;
  message.fresh = true;
  return message;
}

DoneMessage done() {
  DoneMessage message;
  message.result = {FinishReason::kCancelled, 10, 4, 20, 0.5, 1.5};
  message.compute_seconds = 2.5;
  message.collective_seconds = 3.5;
  message.collectives = 89;
  message.bytes_sent = 1u << 30;
  message.peak_resident = std::uint64_t{3} << 32;
  return message;
}

// One of every kind, in the order of the variant.
std::vector<ControlMessage> all_kinds() {
  std::vector<ControlMessage> all{configure(),
                                  PeersMessage{{"127.0.0.1", "fd00::1"}, {1024, 65535}},
                                  begin(),
                                  CancelMessage{},
                                  ListeningMessage{4711},
                                  LoadingMessage{1, 2},
                                  ReadyMessage{3, 1, 4, "CPU", 0.25},
                                  HeartbeatMessage{"idle", 12},
                                  TokenMessage{-1},
                                  LogitsMessage{{1.0F, -2.5F}},
                                  done(),
                                  FailedMessage{Error{ErrorCode::kIntegrity, "differs", 3}, false},
                                  TraceMessage{{-1, 2}, 7, {1.0F, 2.0F}},
                                  SliceHashMessage{3, {"output.weight", {5, 6}}},
                                  EndMessage{},
                                  AbandonMessage{12},
                                  LeftMessage{12}};
  EXPECT_EQ(all.size(), std::variant_size_v<ControlMessage>);
  return all;
}

template <typename Message>
Message travelled(const Message& message) {
  const auto decoded = decode_control(encode_control(message));
  EXPECT_TRUE(decoded) << decoded.error().message;
  const auto* same_kind = decoded ? std::get_if<Message>(&*decoded) : nullptr;
  EXPECT_NE(same_kind, nullptr);
  return same_kind == nullptr ? Message{} : *same_kind;
}

TEST(ControlMessage, EveryKindStaysItsKindAndItsBytes) {
  const std::vector<ControlMessage> all = all_kinds();
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].index(), i);
    const std::vector<std::byte> bytes = encode_control(all[i]);
    const auto decoded = decode_control(bytes);
    ASSERT_TRUE(decoded) << i << ": " << decoded.error().message;
    EXPECT_EQ(decoded->index(), i);
    EXPECT_EQ(encode_control(*decoded), bytes) << i;
  }
}

TEST(ControlMessage, EveryFieldOfAConfigurationTravels) {
  const ConfigureMessage sent = configure();
  const ConfigureMessage got = travelled(sent);
  EXPECT_EQ(got.model_path, sent.model_path);
  EXPECT_EQ(got.job, sent.job);
  EXPECT_EQ(got.epoch, sent.epoch);
  EXPECT_EQ(got.layout.shares, sent.layout.shares);
  EXPECT_EQ(got.layout.stages, sent.layout.stages);
  EXPECT_EQ(got.layout.whole_experts, sent.layout.whole_experts);
  EXPECT_EQ(got.cache_type, sent.cache_type);
  EXPECT_EQ(got.rank, sent.rank);
  EXPECT_EQ(got.link, sent.link);
  EXPECT_EQ(got.verbs.devices, sent.verbs.devices);
  EXPECT_EQ(got.verbs.gid_index, sent.verbs.gid_index);
  EXPECT_EQ(got.verbs.qp_type, sent.verbs.qp_type);
  EXPECT_EQ(got.verbs.slot_bytes, sent.verbs.slot_bytes);
  EXPECT_EQ(got.verbs.fall_back_to_tcp, sent.verbs.fall_back_to_tcp);
  EXPECT_EQ(got.device, sent.device);
  EXPECT_EQ(got.threads, sent.threads);
  EXPECT_EQ(got.context, sent.context);
  EXPECT_EQ(got.slots, sent.slots);
  EXPECT_EQ(got.chunk_tokens, sent.chunk_tokens);
  EXPECT_EQ(got.timeout_ms, sent.timeout_ms);
  EXPECT_EQ(got.wire, sent.wire);
  EXPECT_EQ(got.one_shot_max, sent.one_shot_max);
  EXPECT_EQ(got.hashes, sent.hashes);
  EXPECT_EQ(got.recover, sent.recover);
}

TEST(ControlMessage, EveryFieldOfARequestTravels) {
  const BeginMessage sent = begin();
  const BeginMessage got = travelled(sent);
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.request.prompt, sent.request.prompt);
  const SamplingParams& sampling = got.request.sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.min_p, 0.05F);
  EXPECT_EQ(sampling.repeat_penalty, 1.1F);
  EXPECT_EQ(sampling.presence_penalty, 0.2F);
  EXPECT_EQ(sampling.frequency_penalty, 0.3F);
  EXPECT_EQ(sampling.penalty_window, 32);
  EXPECT_EQ(sampling.seed, 77u);
  EXPECT_EQ(got.request.tokens_max, 128);
  EXPECT_EQ(got.request.end_tokens, sent.request.end_tokens);
  EXPECT_EQ(got.request.first_draw, 11u);
  EXPECT_EQ(got.request.stepwise, 10u);
  EXPECT_TRUE(got.fresh);
}

TEST(ControlMessage, EveryFieldOfAResultTravels) {
  const DoneMessage sent = done();
  const DoneMessage got = travelled(sent);
  EXPECT_EQ(got.result.reason, FinishReason::kCancelled);
  EXPECT_EQ(got.result.prompt_tokens, 10);
  EXPECT_EQ(got.result.cached_tokens, 4);
  EXPECT_EQ(got.result.answer_tokens, 20);
  EXPECT_EQ(got.result.prefill_seconds, 0.5);
  EXPECT_EQ(got.result.decode_seconds, 1.5);
  EXPECT_EQ(got.compute_seconds, 2.5);
  EXPECT_EQ(got.collective_seconds, 3.5);
  EXPECT_EQ(got.collectives, 89u);
  EXPECT_EQ(got.bytes_sent, sent.bytes_sent);
  EXPECT_EQ(got.peak_resident, sent.peak_resident);
}

TEST(ControlMessage, FieldsOfSmallMessagesTravel) {
  EXPECT_THAT(travelled(PeersMessage{{"127.0.0.1", "fd00::1"}, {1024, 65535}}).ports,
              ElementsAre(1024, 65535));
  EXPECT_EQ(travelled(ListeningMessage{4711}).port, 4711);
  EXPECT_EQ(travelled(LoadingMessage{1, 2}).bytes_done, 1u);
  EXPECT_EQ(travelled(LoadingMessage{1, 2}).bytes_total, 2u);
  const ReadyMessage ready = travelled(ReadyMessage{3, 1, 4, "CPU", 0.25});
  EXPECT_EQ(ready.weight_bytes, 3u);
  EXPECT_EQ(ready.read_bytes, 1u);
  EXPECT_EQ(ready.cache_bytes, 4u);
  EXPECT_EQ(ready.device, "CPU");
  EXPECT_EQ(ready.load_seconds, 0.25);
  EXPECT_EQ(travelled(HeartbeatMessage{"idle", 12}).activity, "idle");
  EXPECT_EQ(travelled(HeartbeatMessage{"idle", 12}).steps, 12u);
  EXPECT_EQ(travelled(AbandonMessage{12}).next, 12u);
  EXPECT_EQ(travelled(LeftMessage{13}).next, 13u);
  EXPECT_EQ(travelled(TokenMessage{129279}).token, 129279);
  EXPECT_THAT(travelled(LogitsMessage{{1.0F, -2.5F}}).values, ElementsAre(1.0F, -2.5F));
}

TEST(ControlMessage, WhatVerifyAsksForTravels) {
  const TraceMessage trace = travelled(TraceMessage{{-1, 2}, 7, {1.0F, 2.0F}});
  EXPECT_EQ(trace.place, (TracePlace{-1, 2}));
  EXPECT_EQ(trace.position, 7);
  EXPECT_THAT(trace.sketches, ElementsAre(1.0F, 2.0F));
  const SliceHashMessage hash = travelled(SliceHashMessage{3, {"output.weight", {5, 6}}});
  EXPECT_EQ(hash.rank, 3);
  EXPECT_EQ(hash.hash.tensor, "output.weight");
  EXPECT_THAT(hash.hash.blocks, ElementsAre(5, 6));
}

TEST(ControlMessage, ErrorsTravelWithAndWithoutARank) {
  const Error with_rank =
      travelled(FailedMessage{Error{ErrorCode::kIntegrity, "differs", 3}, false}).error;
  EXPECT_EQ(with_rank.code, ErrorCode::kIntegrity);
  EXPECT_EQ(with_rank.message, "differs");
  EXPECT_EQ(with_rank.rank, 3);
  EXPECT_EQ(travelled(FailedMessage{Error{ErrorCode::kIo, "", {}}, true}).error.rank, std::nullopt);
  EXPECT_FALSE(travelled(FailedMessage{Error{}, false}).ends);
  EXPECT_TRUE(travelled(FailedMessage{Error{}, true}).ends);
}

TEST(ControlMessage, EveryTruncationOfEveryKindIsAnError) {
  for (const ControlMessage& message : all_kinds()) {
    const std::vector<std::byte> bytes = encode_control(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> part(bytes.begin(),
                                        bytes.begin() + static_cast<std::ptrdiff_t>(size));
      const auto decoded = decode_control(part);
      ASSERT_FALSE(decoded) << "kind " << message.index() << ", " << size << " bytes";
      EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_control(longer)) << message.index();
  }
}

TEST(ControlMessage, UnknownKindIsNamed) {
  for (const std::uint8_t kind :
       {std::uint8_t{std::variant_size_v<ControlMessage>}, std::uint8_t{255}}) {
    const std::vector<std::byte> bytes{std::byte{kind}};
    const auto decoded = decode_control(bytes);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
    EXPECT_THAT(decoded.error().message, HasSubstr(std::to_string(kind)));
  }
}

TEST(ControlMessage, NoDamagedByteCrashes) {
  std::mt19937 random(37);
  for (const ControlMessage& message : all_kinds()) {
    const std::vector<std::byte> bytes = encode_control(message);
    for (int round = 0; round < 3000; ++round) {
      std::vector<std::byte> damaged = bytes;
      for (int i = 0; i < 2; ++i)
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      const auto decoded = decode_control(damaged);
      if (!decoded) {
        ASSERT_EQ(decoded.error().code, ErrorCode::kProtocol);
      }
    }
  }
}

}  // namespace
}  // namespace sinew
