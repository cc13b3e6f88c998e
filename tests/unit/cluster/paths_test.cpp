#include "cluster/paths.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sinew {
namespace {

using namespace std::chrono_literals;

const Address kThunderbolt{PathKind::kThunderbolt, true, "169.254.0.1", 1};
const Address kWifi{PathKind::kWifi, false, "192.168.0.1", 1};

struct PathChoice : ::testing::Test {
  Paths paths{ClusterTiming{}};
  NodeId peer{{1}};
  NodeCore::Actions actions;
  Time now = 100s;
  bool thunderbolt = true;

  void wait(Time time) {
    for (const Time end = now + time; now < end; now += 500ms) {
      paths.probed(now, peer, kWifi, 4ms);
      paths.probed(now, peer, kThunderbolt, thunderbolt ? std::optional<Time>(30us) : std::nullopt);
      paths.tick(now, {peer}, actions);
    }
  }
  long changes() {
    return std::ranges::count(actions.events, EventKind::kPathChanged, &Event::kind);
  }
};

TEST_F(PathChoice, TheBestKindIsUsed) {
  wait(1s);
  EXPECT_EQ(paths.in_use(peer), kThunderbolt);
  EXPECT_EQ(changes(), 0);
}

TEST_F(PathChoice, ALossIsSaidAndUndoneWhenThePathIsGoodForAWhile) {
  wait(1s);
  thunderbolt = false;
  wait(1s);
  EXPECT_EQ(paths.in_use(peer), kWifi);
  EXPECT_EQ(changes(), 1);
  thunderbolt = true;
  wait(3s);
  EXPECT_EQ(paths.in_use(peer), kWifi) << "it may go again";
  wait(4s);
  EXPECT_EQ(paths.in_use(peer), kThunderbolt);
  EXPECT_EQ(changes(), 2);
}

TEST_F(PathChoice, APathThatFlapsIsLeftAlone) {
  wait(1s);
  for (int i = 0; i < 10; ++i) {
    thunderbolt = i % 2 == 1;
    wait(2s);
  }
  EXPECT_EQ(changes(), 1);
}

TEST_F(PathChoice, NoPathAtAllIsSaidOnce) {
  wait(1s);
  for (int i = 0; i < 20; ++i) paths.tick(now += 1s, {peer}, actions);
  EXPECT_EQ(std::ranges::count(actions.events, EventKind::kPathLost, &Event::kind), 1);
}

}  // namespace
}  // namespace sinew
