"""Training jobs of Huawei ModelArts, version 2 of its API, over the native jobs."""
