#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "support/logits_program.h"

namespace sinew::test {

// See the tests for how each was derived.
struct Tolerance {
  double median_kl;
  double position_kl;
  double outliers;  // share of positions above position_kl
  double gap;       // logits: the best two may change places within it
};
// Judges many positions together.
class Comparison {
 public:
  explicit Comparison(const Tolerance& tolerance) : tolerance_(tolerance) {}

  // Both hold the logits of the same positions, one row after another.
  void add(std::span<const float> oracle, std::span<const float> ours, std::size_t rows) {
    ASSERT_EQ(oracle.size(), ours.size());
    const std::size_t width = oracle.size() / rows;
    for (std::size_t row = 0; row < rows; ++row)
      add_row(oracle.subspan(row * width, width), ours.subspan(row * width, width));
  }

  void judge() {
    ASSERT_FALSE(kl_.empty());
    std::sort(kl_.begin(), kl_.end());
    const double median = kl_[kl_.size() / 2];
    std::printf(
        "%zu positions: KL median %.2e, largest %.2e; %zu above %.0e; best token tied in %zu\n",
        kl_.size(), median, kl_.back(), outliers_, tolerance_.position_kl, ties_);
    EXPECT_LT(median, tolerance_.median_kl);
    EXPECT_LE(static_cast<double>(outliers_),
              tolerance_.outliers * static_cast<double>(kl_.size()));
  }

 private:
  void add_row(std::span<const float> oracle, std::span<const float> ours) {
    kl_.push_back(kl_divergence(oracle, ours));
    if (kl_.back() > tolerance_.position_kl) {
      ++outliers_;
    } else if (arg_max(oracle) != arg_max(ours)) {
      ++ties_;
      EXPECT_LT(best_gap(oracle), tolerance_.gap) << "the best token differs";
    }
  }

  Tolerance tolerance_;
  std::vector<double> kl_;
  std::size_t outliers_ = 0;
  std::size_t ties_ = 0;
};

}  // namespace sinew::test
