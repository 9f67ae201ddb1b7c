"""What a mechanism is made of: bounds, noise, post-processing and sampling."""
