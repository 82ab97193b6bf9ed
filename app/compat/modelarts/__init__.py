"""Huawei ModelArts' API, version 2, for training jobs, over the native jobs."""
