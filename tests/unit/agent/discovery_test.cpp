#include "agent/discovery.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>

#include "base/assert.h"

namespace sinew {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A daemon with the answers of one test. A reference is a pipe that is readable while something is
// to be told.
struct FakeRef {
  std::array<int, 2> pipe{};
  std::function<void()> tell;
};
std::atomic<int> g_open{0};
bool g_absent = false;
std::vector<unsigned char> g_text;

FakeRef* make_ref(std::function<void(FakeRef*)> tell) {
  auto* ref = new FakeRef;
  SINEW_ASSERT(::pipe(ref->pipe.data()) == 0);
  ++g_open;
  if (tell) {
    ref->tell = [ref, tell] { tell(ref); };
    SINEW_ASSERT(::write(ref->pipe[1], "x", 1) == 1);
  }
  return ref;
}

DnsSdApi fake() {
  DnsSdApi api;
  api.announce = [](DnsSdApi::Ref* ref, std::uint32_t, std::uint32_t, const char*, const char*,
                    const char*, const char*, std::uint16_t, std::uint16_t, const void*,
                    DnsSdApi::RegisterReply, void*) -> std::int32_t {
    if (g_absent) return -65537;
    *ref = make_ref({});
    return 0;
  };
  api.browse = [](DnsSdApi::Ref* ref, std::uint32_t, std::uint32_t, const char* type,
                  const char* domain, DnsSdApi::BrowseReply reply, void* context) -> std::int32_t {
    *ref = make_ref(
        [=](FakeRef* self) { reply(self, 2, 1, 0, "sinew-other", type, domain, context); });
    return 0;
  };
  api.resolve = [](DnsSdApi::Ref* ref, std::uint32_t, std::uint32_t, const char* name, const char*,
                   const char*, DnsSdApi::ResolveReply reply, void* context) -> std::int32_t {
    *ref = make_ref([=](FakeRef* self) {
      reply(self, 0, 1, 0, name, "other.local", htons(7463),
            static_cast<std::uint16_t>(g_text.size()), g_text.data(), context);
    });
    return 0;
  };
  api.descriptor = [](DnsSdApi::Ref ref) { return static_cast<FakeRef*>(ref)->pipe[0]; };
  api.process = [](DnsSdApi::Ref ref) -> std::int32_t {
    auto* fake = static_cast<FakeRef*>(ref);
    char byte = 0;
    SINEW_ASSERT(::read(fake->pipe[0], &byte, 1) == 1);
    fake->tell();
    return 0;
  };
  api.release = [](DnsSdApi::Ref ref) {
    auto* fake = static_cast<FakeRef*>(ref);
    ::close(fake->pipe[0]);
    ::close(fake->pipe[1]);
    delete fake;
    --g_open;
  };
  return api;
}

bool soon(const std::function<bool()>& done) {
  for (int turn = 0; turn < 2000; ++turn) {
    if (done()) return true;
    const timespec breath{0, 10'000'000};
    ::nanosleep(&breath, nullptr);
  }
  return false;
}

TEST(Discovery, FindsNodesOfItsOwnClusterAndLetsGoOfEverything) {
  g_absent = false;
  g_text = encode_announcement({"c1", "n2", {"10.0.0.2", "fd00::2"}});
  {
    const auto discovery = Discovery::start(fake(), {"c1", "n1", {}}, 7463);
    ASSERT_TRUE(soon([&] { return discovery->found().size() == 2; }));
    EXPECT_EQ(discovery->found()[0].host, "10.0.0.2");
    EXPECT_EQ(discovery->found()[0].port, 7463);
  }
  EXPECT_TRUE(soon([] { return g_open == 0; }));
}

TEST(Discovery, AnAbsentDaemonIsOneLine) {
  g_absent = true;
  const auto discovery = Discovery::start(fake(), {"c1", "n1", {}}, 7463);
  std::string line;
  ASSERT_TRUE(soon([&] { return !(line = discovery->take_complaint()).empty(); }));
  EXPECT_THAT(line, HasSubstr("is avahi-daemon running?"));
  EXPECT_EQ(discovery->take_complaint(), "");
  EXPECT_TRUE(discovery->found().empty());
}

TEST(Discovery, AnAnnouncementIsReadAsFarAsItMakesSense) {
  auto text = encode_announcement({"c1", "n1", {"10.0.0.1", "not-an-address", "::1"}});
  Announcement read = decode_announcement(std::as_bytes(std::span(text)));
  EXPECT_EQ(read.cluster, "c1");
  EXPECT_EQ(read.node, "n1");
  EXPECT_THAT(read.hosts, ElementsAre("10.0.0.1", "::1"));
  text.pop_back();  // the last item is longer than what is there
  read = decode_announcement(std::as_bytes(std::span(text)));
  EXPECT_THAT(read.hosts, ElementsAre("10.0.0.1"));
  EXPECT_TRUE(decode_announcement({}).hosts.empty());
  const Announcement many{"c", "n", std::vector<std::string>(100, "10.0.0.1")};
  text = encode_announcement(many);
  EXPECT_EQ(decode_announcement(std::as_bytes(std::span(text))).hosts.size(), kMemberAddressesMax);
}

}  // namespace
}  // namespace sinew
