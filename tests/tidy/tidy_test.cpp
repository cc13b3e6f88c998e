// The house rules as a test: what STYLE.md asks and no compiler checks. Reads the checkout, runs
// nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace sinew {
namespace {

namespace fs = std::filesystem;

struct Text {
  std::string path;  // from the root of the checkout
  std::vector<std::string> lines;
  bool ends_with_newline = true;
};

Text read_text(const fs::path& root, const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream buffer;
  buffer << in.rdbuf();
  const std::string all = buffer.str();
  Text text{fs::relative(file, root).generic_string(), {}, all.empty() || all.back() == '\n'};
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) text.lines.push_back(line);
  return text;
}

bool is_text_file(const fs::path& file) {
  static const std::set<std::string> extensions{".h",    ".cpp",  ".md",  ".txt", ".cmake", ".json",
                                                ".yaml", ".bash", ".sh",  ".mjs", ".js",    ".ts",
                                                ".py",   ".html", ".css", ""};
  return extensions.contains(file.extension().string());
}

// All texts that people write. Data (models, corpora, recorded outputs) and build folders are not.
const std::vector<Text>& checkout() {
  static const std::vector<Text> texts = [] {
    static const std::set<std::string> skipped{".git",   "build",  "node_modules", "corpus",
                                               "golden", "models", "shared",       ".cache"};
    const fs::path root = SINEW_SOURCE_DIR;
    std::vector<Text> found;
    for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
      if (it->is_directory()) {
        if (skipped.contains(it->path().filename().string())) it.disable_recursion_pending();
      } else if (it->is_regular_file() && is_text_file(it->path())) {
        found.push_back(read_text(root, it->path()));
      }
    }
    return found;
  }();
  return texts;
}

bool is_cpp(const Text& text) {
  return text.path.ends_with(".h") || text.path.ends_with(".cpp");
}

// "src/gguf/reader.h" -> "gguf"; empty for files that are not in a folder of src/.
std::string module_of(const std::string& path) {
  if (!path.starts_with("src/")) return {};
  const auto slash = path.find('/', 4);
  return slash == std::string::npos ? std::string{} : path.substr(4, slash - 4);
}

struct Table {
  std::map<std::string, int> place;  // module -> its number
  std::set<std::string> core;
};

// The table of src/README.md is the only place where the order is written down.
const Table& table() {
  static const Table parsed = [] {
    Table result;
    bool core = true;
    static const std::regex row(R"(^\|\s*(\d+)\s*\|\s*`([a-z_]+)/`\s*\|.*)");
    for (const std::string& line :
         read_text(SINEW_SOURCE_DIR, fs::path(SINEW_SOURCE_DIR) / "src/README.md").lines) {
      std::smatch match;
      if (line.find("*edges*") != std::string::npos) core = false;
      if (!std::regex_match(line, match, row)) continue;
      result.place[match[2]] = std::stoi(match[1]);
      if (core) result.core.insert(match[2]);
    }
    return result;
  }();
  return parsed;
}

// For every line of every text that `chosen` accepts: a failure where `pattern` is found.
void expect_nowhere(const std::regex& pattern, const std::string& why,
                    const std::function<bool(const Text&)>& chosen) {
  for (const Text& text : checkout()) {
    if (!chosen(text)) continue;
    for (std::size_t i = 0; i < text.lines.size(); ++i) {
      if (std::regex_search(text.lines[i], pattern)) {
        ADD_FAILURE() << text.path << ":" << i + 1 << ": " << why << ": " << text.lines[i];
      }
    }
  }
}

bool any_text(const Text&) {
  return true;
}

TEST(Tidy, TableOfSrcNamesEveryFolder) {
  ASSERT_GE(table().place.size(), 15U) << "src/README.md's table was not understood";
  EXPECT_TRUE(table().core.contains("base"));
  EXPECT_FALSE(table().core.contains("cli"));
  std::set<std::string> folders;
  for (const auto& entry : fs::directory_iterator(fs::path(SINEW_SOURCE_DIR) / "src")) {
    if (!entry.is_directory()) continue;
    folders.insert(entry.path().filename().string());
  }
  for (const std::string& folder : folders) {
    EXPECT_TRUE(table().place.contains(folder)) << "src/" << folder << " is not in src/README.md";
  }
  for (const auto& [folder, number] : table().place) {
    EXPECT_TRUE(folders.contains(folder))
        << "src/README.md names a folder that is not there: " << folder;
  }
}

TEST(Tidy, IncludesFollowTheTable) {
  static const std::regex include(R"re(^\s*#include "([a-z_]+)/([^"]+)")re");
  std::size_t seen = 0;
  for (const Text& text : checkout()) {
    const std::string module = module_of(text.path);
    if (module.empty() || !is_cpp(text)) continue;
    for (const std::string& line : text.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      ++seen;
      const auto target = table().place.find(match[1]);
      ASSERT_NE(target, table().place.end()) << text.path << ": " << line;
      EXPECT_LE(target->second, table().place.at(module))
          << text.path << " includes from a folder below its own: " << line;
      EXPECT_TRUE(fs::exists(fs::path(SINEW_SOURCE_DIR) / "src" / match[1].str() / match[2].str()))
          << text.path << ": " << line;
    }
  }
  EXPECT_GT(seen, 20U);
}

TEST(Tidy, CoreFoldersTouchNoWorld) {
  static const std::regex world(
      "#include <(sys/|netinet/|arpa/|netdb|unistd|fcntl|poll|pthread|thread|mutex|shared_mutex|"
      "condition_variable|future|semaphore|fstream|iostream|filesystem|csignal|signal|boost/asio|"
      "boost/beast)"
      R"(|\bgetenv\(|std::c(out|err)\b|\bstd::printf\(|system_clock)");
  // The last words before an abort, and the log's sink, are base's own business.
  static const std::set<std::string> allowed{"src/base/assert.cpp", "src/base/log.cpp"};
  expect_nowhere(world, "a core folder touches files, sockets, threads or output",
                 [](const Text& text) {
                   return is_cpp(text) && table().core.contains(module_of(text.path)) &&
                          !allowed.contains(text.path);
                 });
}

TEST(Tidy, FilesAreShort) {
  for (const Text& text : checkout()) {
    if (!is_cpp(text)) continue;
    EXPECT_LE(text.lines.size(), 600U) << text.path << " has " << text.lines.size() << " lines";
  }
}

TEST(Tidy, HeadersHaveOneGuardAndNoHiddenState) {
  for (const Text& text : checkout()) {
    if (!text.path.ends_with(".h")) continue;
    const auto& lines = text.lines;
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "#pragma once"), 1) << text.path;
  }
  expect_nowhere(std::regex(R"(^namespace \{|^\s*using namespace (?!std::[a-z_]*literals))"),
                 "a header gives every includer its own copy, or all its names",
                 [](const Text& text) { return text.path.ends_with(".h"); });
}

TEST(Tidy, NothingIsLeftForLater) {
  // Built from halves so that this file passes its own test.
  const std::string words = std::string(R"(\b(TO)") + "DO|FIX" + "ME|X" + "XX|HA" + R"(CK)\b)";
  expect_nowhere(std::regex(words), "finish it, or write an issue", any_text);
}

TEST(Tidy, NoRegistryHostIsNamed) {
  const std::string dot = R"(\.)";
  const std::string hosts = "registry" + dot + "(npmjs|yarnpkg)|(deb|security|ftp)" + dot +
                            "debian|pypi" + dot + "org|crates" + dot + "io|proxy" + dot +
                            "golang|repo1?" + dot + "maven";
  expect_nowhere(std::regex(hosts), "package clients know their registry", any_text);
}

TEST(Tidy, NoPathOfOneMachine) {
  const std::string paths =
      std::string(R"((^|[^A-Za-z0-9_./$}*-])/(wo)") + "rk|ho" + "me/|ro" + R"(ot)/)";
  expect_nowhere(std::regex(paths), "a path that exists on one machine only", any_text);
}

TEST(Tidy, LinesEndCleanly) {
  expect_nowhere(std::regex(R"([ \t\r]$)"), "space at the end of the line",
                 [](const Text& text) { return !text.path.ends_with(".md"); });
  expect_nowhere(std::regex("\t"), "a tab", is_cpp);
  for (const Text& text : checkout()) {
    EXPECT_TRUE(text.ends_with_newline) << text.path << " has no newline at its end";
  }
}

TEST(Tidy, UnitTestsMirrorTheirSources) {
  for (const Text& text : checkout()) {
    if (!text.path.starts_with("tests/unit/") || !text.path.ends_with("_test.cpp")) continue;
    const fs::path path = text.path;
    const std::string module = path.parent_path().filename().string();
    const std::string stem = path.stem().string();
    // A test of several files together says in its first line what it is about.
    bool mirrors = !text.lines.empty() && text.lines.front().starts_with("// ");
    const fs::path folder = fs::path(SINEW_SOURCE_DIR) / "src" / module;
    ASSERT_TRUE(fs::is_directory(folder)) << text.path << " mirrors no folder of src/";
    for (const auto& entry : fs::directory_iterator(folder)) {
      mirrors = mirrors || stem.starts_with(entry.path().stem().string() + "_");
    }
    EXPECT_TRUE(mirrors) << text.path << " has the name of no file in src/" << module
                         << " and does not begin with a comment that says what it tests";
  }
}

TEST(Tidy, DocumentsNameFilesThatExist) {
  static const std::regex file(R"(`((?:[a-z_.0-9]+/)*[a-z_0-9]+\.(?:h|cpp|md|cmake|bash))`)");
  const fs::path root = SINEW_SOURCE_DIR;
  std::size_t seen = 0;
  for (const Text& text : checkout()) {
    if (!text.path.ends_with(".md")) continue;
    const fs::path beside = (root / text.path).parent_path();
    for (const std::string& line : text.lines) {
      for (std::sregex_iterator it(line.begin(), line.end(), file), end; it != end; ++it) {
        const std::string name = (*it)[1];
        ++seen;
        EXPECT_TRUE(fs::exists(root / name) || fs::exists(root / "src" / name) ||
                    fs::exists(beside / name))
            << text.path << " names " << name << ", which is not there";
      }
    }
  }
  EXPECT_GT(seen, 5U);
}

TEST(Tidy, UserGuideGivesEveryExitStatus) {
  const Text guide = read_text(SINEW_SOURCE_DIR, fs::path(SINEW_SOURCE_DIR) / "docs/user-guide.md");
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    const auto status = std::to_string(exit_status(static_cast<ErrorCode>(code)));
    const bool given = std::any_of(
        guide.lines.begin(), guide.lines.end(),
        [&](const std::string& line) { return line.starts_with("| " + status + " |"); });
    EXPECT_TRUE(given) << "exit status " << status << " ("
                       << error_code_name(static_cast<ErrorCode>(code)) << ") is not in the table";
  }
}

}  // namespace
}  // namespace sinew
