//! The forwarder: verdict programs, the worker loop, and the map from cores to TX queues.
#![no_std]
