#include "api/chat_response.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sinew {
namespace {

using nlohmann::json;

const AnswerIdentity kIdentity{"chatcmpl-1", "tiny", 1700000000};

TEST(ChatResponse, WholeAnswer) {
  const auto body = json::parse(chat_completion(kIdentity, "hey", AnswerEnd::kLength, {7, 3, 2}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["id"], "chatcmpl-1");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hey");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_EQ(body["usage"]["total_tokens"], 9);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

TEST(ChatResponse, FinishReasonIsNullUntilTheLastChunk) {
  const auto role = json::parse(role_chunk(kIdentity));
  const auto delta = json::parse(delta_chunk(kIdentity, "a\nb"));
  const auto end = json::parse(end_chunk(kIdentity, AnswerEnd::kStop));
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(role["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(delta["choices"][0]["delta"]["content"], "a\nb");
  EXPECT_TRUE(delta["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(end["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(end["choices"][0]["delta"].empty());
  for (const auto& chunk : {role, delta, end}) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["created"], 1700000000);
  }
}

TEST(ChatResponse, UsageChunkHasNoChoices) {
  const auto usage = json::parse(usage_chunk(kIdentity, {1, 0, 2}));
  EXPECT_TRUE(usage["choices"].is_array() && usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["total_tokens"], 3);
}

TEST(ChatResponse, ChunksAreOneLine_WhateverTheText) {
  EXPECT_EQ(delta_chunk(kIdentity, "a\nb\r\n\xff").find('\n'), std::string::npos);
}

TEST(ChatResponse, ModelList) {
  const auto list = json::parse(model_list({"tiny", 5, 2048, 100}));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["meta"]["n_ctx"], 2048);
}

}  // namespace
}  // namespace sinew
