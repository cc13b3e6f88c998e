#include "host/tool.h"

#include <gtest/gtest.h>

namespace sinew {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000};

TEST(RunTool, GivesOutputAndStatus) {
  const auto output = run_tool({"sh", "-c", "echo out; echo err >&2; exit 3"}, kLong, 100);
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->out, "out\n");
  EXPECT_EQ(output->exit_status, 3);
}

TEST(RunTool, NamesAToolThatIsNotThere) {
  const auto output = run_tool({"sinew-no-such-tool"}, kLong, 100);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kNotFound);
}

TEST(RunTool, EndsAToolThatIsLateEvenIfItIgnoresTheRequest) {
  for (const char* script :
       {"exec sleep 600", "trap '' TERM; while :; do sleep 1; done", "exec >&-; exec sleep 600"}) {
    const auto output = run_tool({"sh", "-c", script}, milliseconds(300), 100);
    ASSERT_FALSE(output) << script;
    EXPECT_EQ(output.error().code, ErrorCode::kDeadline) << output.error().message;
  }
}

TEST(RunTool, EndsAToolThatSaysTooMuch) {
  const auto output = run_tool({"sh", "-c", "while :; do echo more; done"}, kLong, 100);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kIo) << output.error().message;
}

}  // namespace
}  // namespace sinew
