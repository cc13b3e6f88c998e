// What an agent keeps on the disk: the folder, the secret, the identity, the events.
#include "agent/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "agent/events.h"
#include "agent/identity.h"
#include "agent/secret.h"
#include "support/process.h"

namespace sinew {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Opened {
  test::TemporaryFolder outer;
  Result<StateFolder> folder = StateFolder::open(outer.file("state"));
};

mode_t mode_of(const std::string& path) {
  struct stat found {};
  EXPECT_EQ(::stat(path.c_str(), &found), 0);
  return found.st_mode & 07777;
}

TEST(StateFolder, IsForItsOwnerAlone) {
  Opened opened;
  ASSERT_TRUE(opened.folder);
  ASSERT_TRUE(opened.folder->write("file", "bytes"));
  EXPECT_EQ(mode_of(opened.folder->path()), 0700U);
  EXPECT_EQ(mode_of(opened.folder->file("file")), 0600U);
  const auto read = opened.folder->read("file", 100);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->value(), "bytes");
}

TEST(StateFolder, AFileThatOthersMayReadIsRefusedWithTheRemedy) {
  Opened opened;
  ASSERT_TRUE(opened.folder->write("file", "bytes"));
  ASSERT_EQ(::chmod(opened.folder->file("file").c_str(), 0644), 0);
  const auto read = opened.folder->read("file", 100);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kUsage);
  EXPECT_THAT(read.error().message, HasSubstr("chmod 600"));
}

TEST(StateFolder, AFolderThatOthersMayEnterIsRefused) {
  Opened opened;
  ASSERT_EQ(::chmod(opened.folder->path().c_str(), 0755), 0);
  const auto again = StateFolder::open(opened.folder->path());
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("chmod 700"));
}

TEST(StateFolder, ASecondAgentIsRefused) {
  Opened opened;
  ASSERT_TRUE(opened.folder->lock());
  auto second = StateFolder::open(opened.folder->path());
  ASSERT_TRUE(second);
  const Status status = second->lock();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("another agent"));
}

TEST(StateFolder, ALongFileIsRefused) {
  Opened opened;
  ASSERT_TRUE(opened.folder->write("file", "bytes"));
  EXPECT_FALSE(opened.folder->read("file", 4));
  EXPECT_TRUE(opened.folder->read("file", 5));
}

TEST(Secret, TokenAndFileGiveItBack) {
  Opened opened;
  auto drawn = draw_secret("four studios");
  ASSERT_TRUE(drawn);
  drawn->founder = true;
  const auto parsed = parse_token(drawn->token());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->cluster, drawn->cluster);
  EXPECT_EQ(parsed->secret, drawn->secret);
  ASSERT_TRUE(save_secret(*opened.folder, *drawn));
  const auto loaded = load_secret(*opened.folder);
  ASSERT_TRUE(loaded && *loaded);
  EXPECT_EQ((*loaded)->secret, drawn->secret);
  EXPECT_EQ((*loaded)->name, "four studios");
  EXPECT_TRUE((*loaded)->founder);
  EXPECT_NE(drawn->control_key().value(), drawn->secret) << "the secret itself is no TLS key";
}

TEST(Secret, ATypingErrorIsToldWithoutTheToken) {
  std::string token = draw_secret("c")->token();
  token[20] = token[20] == '0' ? '1' : '0';
  const auto parsed = parse_token(token);
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr("typing error"));
  EXPECT_THAT(parsed.error().message, Not(HasSubstr(token.substr(10, 20))));
  EXPECT_FALSE(parse_token("sinew1-00"));
  EXPECT_FALSE(parse_token(""));
}

TEST(Identity, StaysAndItsIncarnationGrows) {
  Opened opened;
  const auto first = take_identity(*opened.folder, {"machine", "card"});
  const auto second = take_identity(*opened.folder, {"machine", "card", "another card"});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->id, second->id);
  EXPECT_EQ(first->incarnation, 1U);
  EXPECT_EQ(second->incarnation, 2U);
  EXPECT_NE(first->nonce, second->nonce);
  EXPECT_FALSE(second->copied);
}

TEST(Identity, ACopiedDiskGetsAnotherId) {
  Opened opened;
  const auto original = take_identity(*opened.folder, {"machine", "card"});
  const auto copy = take_identity(*opened.folder, {"machine", "card of another machine"});
  ASSERT_TRUE(original && copy);
  EXPECT_TRUE(copy->copied);
  EXPECT_EQ(copy->left, original->id);
  EXPECT_NE(copy->id, original->id);
  const auto again = take_identity(*opened.folder, {"machine", "card of another machine"});
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->copied);
  EXPECT_EQ(again->id, copy->id);
}

TEST(Identity, ADamagedFileIsNotTakenForAFirstStart) {
  Opened opened;
  ASSERT_TRUE(opened.folder->write("identity", "{\"id\":"));
  const auto identity = take_identity(*opened.folder, {"machine"});
  ASSERT_FALSE(identity);
  EXPECT_EQ(identity.error().code, ErrorCode::kInvalidFile);
}

TEST(Events, AreKeptInBoundedSpaceNewestLast) {
  Opened opened;
  EventRing ring(*opened.folder);
  const std::string text(1500, 'x');
  for (int i = 0; i < 600; ++i)
    ASSERT_TRUE(ring.add("joined", "1a2b3c4d", std::to_string(i) + " " + text));
  const auto lines = read_events(*opened.folder);
  ASSERT_TRUE(lines);
  EXPECT_LE(lines->size(), 2 * kEventBytesMax);
  EXPECT_GT(lines->size(), kEventBytesMax / 2);
  EXPECT_THAT(*lines, HasSubstr("\"599 "));
  EXPECT_THAT(*lines, Not(HasSubstr("\"0 ")));
}

}  // namespace
}  // namespace sinew
