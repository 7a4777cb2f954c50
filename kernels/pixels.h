// The arithmetic of the op bank, for one pixel or one table entry, shared by the GPU and the CPU.
// Each function returns Pillow's bytes. Compile without floating-point contraction: a fused
// multiply-add rounds once where Pillow rounds twice. The includer defines PIXEL, the function
// attributes of its target.
#pragma once

typedef unsigned char byte;

struct Numbers {  // the parameters of an op: Numbers in ddas_gpu/ops/table.py
    float factor;
    int ints[6];
};

PIXEL int clamp_byte(int v) { return v < 0 ? 0 : v > 255 ? 255 : v; }

// --- point ops: one function per @point_op in ddas_gpu/ops/table.py, called for every byte --------
// Compute in bytes where possible: a vector register holds 64 bytes, but only 16 ints.

// ImageOps.solarize. ints: the threshold modulo 256, and the bits to flip: 255, or 0 at threshold 256.
PIXEL byte solarize_pixel(byte v, const Numbers& numbers) {
    byte threshold = numbers.ints[0], flip = numbers.ints[1];
    return v < threshold ? v : v ^ flip;
}

// AutoAugment's SolarizeAdd. ints: the addition, at most 255. A byte sum that wraps is less than v.
PIXEL byte solarize_add_pixel(byte v, const Numbers& numbers) {
    byte sum = v + numbers.ints[0];
    return v >= 128 ? v : sum < v ? 255 : sum;
}

// ImageOps.posterize. ints: the mask of the high bits to keep.
PIXEL byte posterize_pixel(byte v, const Numbers& numbers) { return v & numbers.ints[0]; }

// Image.blend in C float, truncated. The factor is at most 1000 (table.py), so the int is exact.
PIXEL byte blend_pixel(int degenerate, int v, float factor) {
    return clamp_byte(int(float(degenerate) + factor * float(v - degenerate)));
}

// ImageEnhance.Brightness: a blend with black.
PIXEL byte brightness_pixel(byte v, const Numbers& numbers) {
    return blend_pixel(0, v, numbers.factor);
}

// Image.blend with white.
PIXEL byte lighten_pixel(byte v, const Numbers& numbers) {
    return blend_pixel(255, v, numbers.factor);
}

// --- parts of the other ops -----------------------------------------------------------------------

// convert("L"): ITU-R 601-2 luma in 16.16 fixed point.
PIXEL int grey_pixel(int red, int green, int blue) {
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
}

// Warmth: one channel times its factor in 1/128, at most 256; the sum fits in 16 bits.
PIXEL byte warmth_pixel(byte v, unsigned short gain) {
    unsigned short product = (unsigned short)(v * gain + 64) >> 7;
    return product > 255 ? 255 : product;
}

// The grey that ImageEnhance.Contrast blends with: the rounded mean of convert("L").
PIXEL int mean_grey(unsigned long long sum, unsigned long long pixels) {
    return int((2 * sum + pixels) / (2 * pixels));
}

// ImageFilter.SMOOTH: the 3x3 sum with the centre counted five times, divided by 13 and rounded. Pillow
// computes in float, but a multiple of 1/13 is never near a half. 5042 / 2^16 is 1/13 for these sums.
PIXEL byte smooth_pixel(unsigned short sum) {
    return (unsigned short)(sum + 6) * 5042u >> 16;
}

// ImageFilter.BLUR: the mean of the 16 pixels on the rim of a 5x5 square; exact in Pillow's float.
PIXEL byte blur_pixel(unsigned short sum) { return (unsigned short)(sum + 8) >> 4; }

// ImageOps.autocontrast, entry v of the table for a channel that spans low..high. In double, with
// a multiplication, an addition and a truncation, like Pillow.
PIXEL byte autocontrast_entry(int v, int low, int high) {
    if (high <= low) return v;
    double scale = 255.0 / (high - low);
    double offset = -low * scale;
    return clamp_byte(int(v * scale + offset));
}

// ImageOps.equalize: `below` is the number of darker pixels of the channel. A step of 0 (few pixels, or
// nearly all have one value) leaves the channel unchanged.
struct EqualizeStep {
    unsigned size;
    unsigned reciprocal;  // times 2^32: there is no vector division of integers
};
PIXEL EqualizeStep equalize_step(int pixels, int pixels_of_brightest) {
    unsigned size = (pixels - pixels_of_brightest) / 255;
    return {size, size ? 0xffffffffu / size : 0};
}
PIXEL byte equalize_entry(int v, unsigned below, EqualizeStep step) {
    unsigned dividend = step.size / 2 + below;
    // The quotient or one less, corrected below.
    unsigned quotient = unsigned((unsigned long long)dividend * step.reciprocal >> 32);
    quotient += dividend - quotient * step.size >= step.size;
    return step.size == 0 ? v : quotient > 255 ? 255 : quotient;
}

// Image.transform(AFFINE, NEAREST): 16.16 fixed point that wraps like Pillow's accumulators.
PIXEL int fixed_coordinate(int along_x, int along_y, int offset, int x, int y) {
    return int(unsigned(along_x) * x + unsigned(along_y) * y + unsigned(offset));
}

// The centre of Cutout: maps a uniform 32-bit number to a uniform pixel.
PIXEL int drawn_coordinate(unsigned draw, int size) {
    return int((unsigned long long)draw * size >> 32);
}
