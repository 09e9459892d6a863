"""One phase of pretraining: where it begins, its loop, its evaluation, what it leaves."""
