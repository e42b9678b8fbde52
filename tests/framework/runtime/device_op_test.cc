#include "framework/device/device_op.h"

#include <memory>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class NoWork : public OpKernel {
 public:
  absl::Status Run(KernelContext&) override { return absl::OkStatus(); }
};

class DeviceOpTest : public ::testing::Test {
 protected:
  void OnDevice(const OpDef& def, std::vector<DeviceVariable*> reads, std::vector<DeviceVariable*> writes) {
    DeviceOp& op = ops_.emplace_back();
    op.def = &def;
    op.reads = std::move(reads);
    op.writes = std::move(writes);
  }
  void OnHost(std::vector<DeviceVariable*> reads, std::vector<DeviceVariable*> writes) {
    DeviceOp& op = ops_.emplace_back();
    op.def = &copy_;
    op.host = std::make_unique<NoWork>();
    op.reads_on_host = std::move(reads);
    op.writes = std::move(writes);
  }

  const OpDef copy_ = {.type = "copy"};
  const OpDef reshape_ = {
      .type = "reshape", .attrs = {BoolAttr(std::string(kByReference), false)}, .in_place = {{"X", "Out"}}};
  DeviceVariable a_, b_, c_;
  DeviceVariable lasting_ = {.lasts = true};
  std::vector<DeviceOp> ops_;
};

TEST_F(DeviceOpTest, WhatIsReadBeforeItIsWrittenAndDoesNotLastIsFed) {
  OnDevice(copy_, {&a_, &lasting_}, {&b_});
  OnHost({&b_, &c_}, {&a_});
  OnDevice(copy_, {&a_, &c_}, {&b_});
  EXPECT_THAT(FedVariables(ops_), ElementsAre(&a_, &c_));
}

TEST_F(DeviceOpTest, OneWriterIsAHostOpThatDoesNotReadWhatItWrites) {
  OnHost({}, {&a_, &b_, &lasting_});
  OnDevice(copy_, {&a_}, {&b_});
  OnHost({&c_}, {&c_});
  MarkOneWriter(ops_);
  EXPECT_TRUE(a_.one_writer);
  EXPECT_FALSE(b_.one_writer);
  EXPECT_FALSE(c_.one_writer);
  EXPECT_FALSE(lasting_.one_writer);
}

TEST_F(DeviceOpTest, AViewSharesMemoryThatNobodyWritesInPlace) {
  OnDevice(reshape_, {&a_}, {&b_});
  OnDevice(copy_, {&a_}, {&c_});
  AllowSharing(&ops_);
  EXPECT_TRUE(ops_[0].context.may_share);
  EXPECT_FALSE(ops_[1].context.may_share);
  OnDevice(copy_, {&b_}, {&b_});
  AllowSharing(&ops_);
  EXPECT_FALSE(ops_[0].context.may_share);
}

}  // namespace
}  // namespace weir
