#include "text/answer_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "base/unicode.h"
#include "unit/text/tiny_vocabulary.h"

namespace sinew {
namespace {

using test::TinyVocabulary;

// Every byte is a token, and so are some pairs of them: an answer can be cut in many ways.
Tokenizer make_tokenizer() {
  auto tokenizer = Tokenizer::from_metadata(TinyVocabulary().metadata());
  EXPECT_TRUE(tokenizer);
  return std::move(*tokenizer);
}

std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<std::uint8_t>(c));
  return ids;
}

struct Answer {
  std::string text;
  bool stopped = false;
};

Answer run(const Tokenizer& tokenizer, const std::vector<std::string>& stops,
           const std::vector<TokenId>& ids) {
  AnswerStream stream(tokenizer, stops);
  Answer answer;
  for (const TokenId id : ids) {
    const AnswerStream::Piece piece = stream.add(id);
    EXPECT_TRUE(is_valid_utf8(piece.text));
    answer.text += piece.text;
    answer.stopped = piece.stopped;
    if (piece.stopped) return answer;
  }
  answer.text += stream.finish();
  return answer;
}

// The whole answer at once: invalid bytes replaced, then cut before the stop string that ends
// first.
Answer reference(std::string_view bytes, const std::vector<std::string>& stops) {
  Answer answer;
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    answer.text +=
        step.kind == Utf8Step::Kind::kValid ? bytes.substr(0, step.length) : kReplacement;
    bytes.remove_prefix(step.length);
  }
  for (std::size_t end = 1; end <= answer.text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(answer.text).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest == 0) continue;
    answer.text.resize(end - longest);
    answer.stopped = true;
    break;
  }
  return answer;
}

TEST(AnswerStream, HoldsBackAnIncompleteSequence) {
  const Tokenizer tokenizer = make_tokenizer();
  AnswerStream stream(tokenizer, {});
  EXPECT_EQ(stream.add(0xE4).text, "");
  EXPECT_EQ(stream.add(0xB8).text, "");
  EXPECT_EQ(stream.add(0xAD).text, "\u4e2d");
  EXPECT_EQ(stream.add(0xE4).text, "");
  EXPECT_EQ(stream.add('x').text, "\uFFFDx");
  EXPECT_EQ(stream.add(0xF0).text, "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(AnswerStream, StopsAcrossPiecesAndKeepsWhatOnlyLookedLikeAStop) {
  const Tokenizer tokenizer = make_tokenizer();
  AnswerStream stream(tokenizer, {"END"});
  EXPECT_EQ(stream.add('E').text, "");
  EXPECT_EQ(stream.add('N').text, "");
  EXPECT_EQ(stream.add('E').text, "EN");
  EXPECT_EQ(stream.add('N').text, "");
  const AnswerStream::Piece last = stream.add('D');
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_TRUE(stream.add('x').stopped);
}

TEST(AnswerStream, LeavesControlTokensOut) {
  const Tokenizer tokenizer = make_tokenizer();
  AnswerStream stream(tokenizer, {});
  EXPECT_EQ(stream.add(*tokenizer.find("<bos>")).text, "");
  EXPECT_EQ(stream.add(*tokenizer.find("<u>")).text, "<u>");
}

TEST(AnswerStream, IgnoresAnEmptyStopString) {
  const Tokenizer tokenizer = make_tokenizer();
  EXPECT_EQ(run(tokenizer, {""}, bytes_of("abc")).text, "abc");
}

TEST(AnswerStream, GivesTheWholeTextsAnswerForRandomCutsAndStops) {
  const Tokenizer tokenizer = make_tokenizer();
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  const std::vector<std::string> kParts{"a",      "b",    "ab",        "aa",       "the",
                                        "\u4e2d", "\xE4", "\xB8",      "\xF0\x9F", "\uFFFD",
                                        "\xFF",   " a",   "\U0001f469"};
  const std::vector<std::string> kStops{"ab",      "aba",    "ba",   "aab",
                                        "b\u4e2d", "\uFFFD", "thea", "aaaa"};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) text += kParts[random() % kParts.size()];
    std::vector<std::string> stops;
    for (auto n = random() % 4; n > 0; --n) stops.push_back(kStops[random() % kStops.size()]);
    std::vector<TokenId> ids;
    for (std::string_view rest = text; !rest.empty();) {
      std::size_t length = 1 + random() % std::min<std::size_t>(rest.size(), 4);
      while (!tokenizer.find(rest.substr(0, length))) --length;
      ids.push_back(*tokenizer.find(rest.substr(0, length)));
      rest.remove_prefix(length);
    }
    const Answer answer = run(tokenizer, stops, ids);
    const Answer expected = reference(text, stops);
    ASSERT_EQ(answer.text, expected.text)
        << i << ' ' << testing::PrintToString(text) << ' ' << testing::PrintToString(stops);
    // A stop string that only the end of the answer completes stops nothing any more.
    ASSERT_TRUE(expected.stopped || !answer.stopped);
  }
}

}  // namespace
}  // namespace sinew
