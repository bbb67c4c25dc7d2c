"""What a model can call. A tool gets a decided call in its normal form, and keeps to what it was given."""
