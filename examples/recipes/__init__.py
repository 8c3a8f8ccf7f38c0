"""Ways to combine rubrics that papers describe, each in a few lines."""
