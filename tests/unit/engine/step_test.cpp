#include "engine/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "base/limits.h"

namespace sinew {
namespace {

Step example() {
  Step step;
  step.rows = Step::Rows::kLast;
  step.trace = Trace::kNoisy;
  step.number = 0x0102030405060708;
  step.slot = 3;
  step.position = 4096;
  step.tokens = {1, 0, 129279};
  return step;
}

TEST(Step, EveryFieldTravels) {
  const auto decoded = decode_step(encode_step(example()));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->kind, Step::Kind::kCompute);
  EXPECT_EQ(decoded->rows, Step::Rows::kLast);
  EXPECT_EQ(decoded->trace, Trace::kNoisy);
  EXPECT_EQ(decoded->number, 0x0102030405060708u);
  EXPECT_EQ(decoded->slot, 3u);
  EXPECT_EQ(decoded->position, 4096);
  EXPECT_EQ(decoded->tokens, example().tokens);
}

TEST(Step, EndOfARequestTravels) {
  Step step;
  step.kind = Step::Kind::kEnd;
  step.number = 7;
  const auto decoded = decode_step(encode_step(step));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->kind, Step::Kind::kEnd);
  EXPECT_EQ(decoded->number, 7u);
}

TEST(Step, DecodeStepFitsTheFirstBlock) {
  Step step = example();
  step.tokens.resize(1);
  EXPECT_LE(encode_step(step).size() + sizeof(std::uint32_t), kStepBlockBytes);
}

TEST(Step, EveryTruncationIsAnError) {
  const std::vector<std::byte> bytes = encode_step(example());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> part(bytes.begin(),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const auto decoded = decode_step(part);
    ASSERT_FALSE(decoded) << size;
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_step(longer));
}

TEST(Step, LimitsAreTheLastThatPass) {
  Step step = example();
  step.slot = kSlotCountMax - 1;
  step.position = kContextMax;
  step.tokens.resize(kChunkTokensMax);
  EXPECT_TRUE(decode_step(encode_step(step)));
}

TEST(Step, WhatIsOutsideTheLimitsIsAProtocolError) {
  const std::vector<std::function<void(Step&)>> faults{
      [](Step& step) { step.kind = static_cast<Step::Kind>(2); },
      [](Step& step) { step.rows = static_cast<Step::Rows>(3); },
      [](Step& step) { step.trace = static_cast<Trace>(3); },
      [](Step& step) { step.slot = kSlotCountMax; },
      [](Step& step) { step.position = -1; },
      [](Step& step) { step.position = kContextMax + 1; },
      [](Step& step) { step.tokens.resize(kChunkTokensMax + 1); },
      [](Step& step) { step.tokens.clear(); },
      [](Step& step) { step.kind = Step::Kind::kEnd; },  // with tokens
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Step step = example();
    faults[i](step);
    const auto decoded = decode_step(encode_step(step));
    ASSERT_FALSE(decoded) << i;
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

TEST(Step, NoDamagedByteCrashes) {
  std::mt19937 random(31);
  const std::vector<std::byte> bytes = encode_step(example());
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> damaged = bytes;
    for (int i = 0; i < 3; ++i)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    const auto decoded = decode_step(damaged);
    if (!decoded) {
      ASSERT_EQ(decoded.error().code, ErrorCode::kProtocol);
    }
  }
}

}  // namespace
}  // namespace sinew
