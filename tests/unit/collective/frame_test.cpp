#include "collective/frame.h"

#include <gmock/gmock.h>

#include <random>
#include <vector>

namespace sinew {
namespace {

using ::testing::HasSubstr;

FrameHeader sample() {
  FrameHeader header;
  header.operation = Operation::kBroadcast;
  header.checksummed = true;
  header.source = 2;
  header.subject = 2;
  header.job = JobId{{0x1122334455667788, 0x99aabbccddeeff00}};
  header.epoch = 7;
  header.step = 57;
  header.piece = 2;
  header.wire = WireType::kF16;
  header.sequence = 341;
  header.length = 8192;
  header.checksum = 0xfeedfacecafebeef;
  return header;
}

FrameBytes encoded(const FrameHeader& header) {
  FrameBytes bytes;
  encode_frame(header, bytes);
  return bytes;
}

std::string message_of(const FrameHeader& came) {
  const Status status = check_frame(came, sample());
  EXPECT_FALSE(status);
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
  EXPECT_EQ(status.error().rank, 2);
  return status.error().message;
}

TEST(Frame, EncodedHeader_DecodesToItself) {
  const auto header = decode_frame(encoded(sample()));
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_TRUE(check_frame(*header, sample()));
  EXPECT_EQ(header->checksum, sample().checksum);
}

TEST(Frame, Bytes_AreLittleEndianAtTheDocumentedOffsets) {
  const FrameBytes bytes = encoded(sample());
  EXPECT_EQ(bytes[0], std::byte{'S'});
  EXPECT_EQ(bytes[3], std::byte{'F'});
  EXPECT_EQ(bytes[16], std::byte{0x88});
  EXPECT_EQ(bytes[48], std::byte{341 & 0xff});
  EXPECT_EQ(bytes[49], std::byte{341 >> 8});
  EXPECT_EQ(bytes[57], std::byte{8192 >> 8});
}

// Every bit but those of the checksum, which the payload proves.
TEST(Frame, AnyFlippedHeaderBit_IsNoticed) {
  for (std::size_t bit = 0; bit < 64 * 8; ++bit) {
    FrameBytes bytes = encoded(sample());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto header = decode_frame(bytes);
    EXPECT_FALSE(header && check_frame(*header, sample())) << "bit " << bit;
  }
}

TEST(Frame, Errors_SayWhatWasExpectedAndWhatCame) {
  FrameHeader came = sample();
  came.job.words[0] = 1;
  EXPECT_THAT(message_of(came), HasSubstr("expected job 1122334455667788"));
  came = sample();
  came.epoch = 6;
  EXPECT_THAT(message_of(came), HasSubstr("epoch 6, expected epoch 7"));
  came = sample();
  came.source = 1;
  EXPECT_THAT(message_of(came), HasSubstr("the link to rank 2 brought a frame of rank 1"));
  came = sample();
  came.step = 58;
  EXPECT_THAT(message_of(came), HasSubstr("at step 58, expected step 57"));
  came = sample();
  came.sequence = 340;
  EXPECT_THAT(message_of(came), HasSubstr("broadcast #340 of step 57, expected broadcast #341"));
  came = sample();
  came.operation = Operation::kGather;
  EXPECT_THAT(message_of(came), HasSubstr("is at gather #341 of step 57, expected broadcast"));
  came = sample();
  came.subject = 0;
  EXPECT_THAT(message_of(came), HasSubstr("takes rank 0 for the root, expected rank 2"));
  came = sample();
  came.piece = 1;
  EXPECT_THAT(message_of(came), HasSubstr("sent piece 1, expected piece 2"));
  came = sample();
  came.wire = WireType::kF32;
  EXPECT_THAT(message_of(came), HasSubstr("values as f32, expected f16"));
  came = sample();
  came.length = 4096;
  EXPECT_THAT(message_of(came), HasSubstr("sent 4096 bytes, expected 8192"));
  came = sample();
  came.checksummed = false;
  EXPECT_THAT(message_of(came), HasSubstr("without a checksum"));
}

TEST(Frame, DamagedPayload_IsAnIntegrityError) {
  std::vector<std::byte> payload(8192, std::byte{3});
  FrameHeader header = sample();
  header.checksum = payload_checksum(payload);
  EXPECT_TRUE(check_payload(header, payload_checksum(payload)));
  payload[4000] ^= std::byte{0x10};
  const Status status = check_payload(header, payload_checksum(payload));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIntegrity);
  EXPECT_EQ(status.error().rank, 2);
}

TEST(Frame, RunningChecksum_EqualsThatOfTheWhole) {
  std::mt19937 random(5);
  std::vector<std::byte> payload(300007);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  RunningChecksum running;
  running.add(payload);
  running.restart();
  for (std::size_t begin = 0; begin < payload.size(); begin += 4099) {
    running.add(
        std::span(payload).subspan(begin, std::min<std::size_t>(4099, payload.size() - begin)));
  }
  EXPECT_EQ(running.value(), payload_checksum(payload));
}

}  // namespace
}  // namespace sinew
