#include "base/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace sinew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum class Colour : std::uint8_t { kRed, kGreen };

// One of everything: 1 + 8 + 8 + (4 + 5) + (4 + 3 x 2) bytes.
std::vector<std::byte> example() {
  WireWriter writer;
  const std::vector<std::uint16_t> numbers{1, 2, 65535};
  writer.put(Colour::kGreen)
      .put(std::numeric_limits<std::int64_t>::min())
      .put(0.1)
      .put(std::string_view("sinew"))
      .put_array(std::span<const std::uint16_t>(numbers));
  return {writer.bytes().begin(), writer.bytes().end()};
}

struct Values {
  Colour colour{};
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<std::uint16_t> numbers;
};

Values read(WireReader& reader) {
  Values values;
  values.colour = reader.get<Colour>();
  values.integer = reader.get<std::int64_t>();
  values.real = reader.get<double>();
  values.text = reader.get_string();
  values.numbers = reader.get_array<std::uint16_t>();
  return values;
}

TEST(Wire, WhatIsWrittenIsRead) {
  const std::vector<std::byte> bytes = example();
  EXPECT_EQ(bytes.size(), 36u);
  WireReader reader(bytes);
  const Values values = read(reader);
  EXPECT_TRUE(reader.status("test"));
  EXPECT_EQ(values.colour, Colour::kGreen);
  EXPECT_EQ(values.integer, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(values.real, 0.1);
  EXPECT_EQ(values.text, "sinew");
  EXPECT_THAT(values.numbers, ElementsAre(1, 2, 65535));
}

TEST(Wire, NumbersAreLittleEndianAndCountsHaveFourBytes) {
  WireWriter writer;
  writer.put(std::uint16_t{0x0102}).put(std::string_view("a"));
  std::vector<int> bytes;
  for (const std::byte byte : writer.bytes()) bytes.push_back(std::to_integer<int>(byte));
  EXPECT_THAT(bytes, ElementsAre(2, 1, 1, 0, 0, 0, 'a'));
}

TEST(Wire, EmptyTextsAndArraysAreRead) {
  WireWriter writer;
  writer.put(std::string_view()).put_array(std::span<const double>());
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.get_string(), "");
  EXPECT_THAT(reader.get_array<double>(), IsEmpty());
  EXPECT_TRUE(reader.status("test"));
}

TEST(WireReader, EveryTruncationIsAnError) {
  const std::vector<std::byte> bytes = example();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly that size, so that a sanitizer sees a read behind it.
    const std::vector<std::byte> part(bytes.begin(),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(size));
    WireReader reader(part);
    read(reader);
    const Status status = reader.status("test");
    ASSERT_FALSE(status) << size;
    EXPECT_EQ(status.error().code, ErrorCode::kProtocol);
    EXPECT_THAT(status.error().message, HasSubstr("test"));
    EXPECT_THAT(status.error().message, HasSubstr(std::to_string(size) + " bytes"));
  }
}

TEST(WireReader, BytesLeftOverAreAnError) {
  std::vector<std::byte> bytes = example();
  bytes.push_back(std::byte{0});
  WireReader reader(bytes);
  EXPECT_EQ(read(reader).text, "sinew");
  EXPECT_FALSE(reader.status("test"));
}

TEST(WireReader, CountThatTheBytesCannotHoldGivesNothing) {
  for (const std::uint32_t count : {5u, 1000u, 0x20000000u, 0x40000000u, 0xFFFFFFFFu}) {
    WireWriter writer;
    writer.put(count).put(std::uint32_t{7});
    WireReader text(writer.bytes());
    EXPECT_EQ(text.get_string(), "") << count;
    EXPECT_FALSE(text.status("test")) << count;
    WireReader array(writer.bytes());
    EXPECT_THAT(array.get_array<std::uint64_t>(), IsEmpty()) << count;
    EXPECT_FALSE(array.status("test")) << count;
  }
}

TEST(WireReader, ReadsAfterAnErrorGiveZeros) {
  WireWriter writer;
  writer.put(std::uint32_t{100}).put(std::uint64_t{7});
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.get_string(), "");
  EXPECT_EQ(reader.get<std::uint64_t>(), 0u);
  EXPECT_EQ(reader.get<double>(), 0.0);
  EXPECT_THAT(reader.get_array<char>(), IsEmpty());
  EXPECT_FALSE(reader.status("test"));
}

}  // namespace
}  // namespace sinew
