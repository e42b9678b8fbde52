#include "framework/device/device_scope.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

v1::VarDesc Parameter() {
  v1::VarDesc desc;
  desc.set_name("w");
  desc.add_dims(10);
  desc.add_dims(4);
  desc.set_persistable(true);
  return desc;
}

TEST(DeviceScopeTest, AVariableOfTheDeviceIsThatOfTheScope) {
  Scope scope;
  DeviceScope device(&scope);
  DeviceVariable* const w = device.FindOrCreate(Parameter());
  EXPECT_THAT(w->host, ElementsAre(scope.Find("w")));
  EXPECT_TRUE(w->shared);
  EXPECT_TRUE(w->lasts);
  EXPECT_EQ(w->width, 4);
  EXPECT_EQ(device.FindOrCreate(Parameter()), w);
}

TEST(DeviceScopeTest, WhatTheHostHasWrittenIsCopiedAgain) {
  Scope scope;
  DeviceScope device(&scope);
  DeviceVariable* const w = device.FindOrCreate(Parameter());
  // A step has updated the value on the device.
  w->on_host = false;
  w->on_device = true;
  device.HostWasWritten();
  EXPECT_TRUE(w->on_host);
  EXPECT_FALSE(w->on_device);
}

}  // namespace
}  // namespace weir
