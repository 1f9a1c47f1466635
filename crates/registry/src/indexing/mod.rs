//! Each layer's index, made when the layer was pushed or has come from another registry.
