//! Network card drivers: packets, pools, rings, and the devices that own them.
#![no_std]
