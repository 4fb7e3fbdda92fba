// Surfaces: the same picture on a canvas, and as SVG.

export const FONT = "system-ui, 'Noto Sans', 'Noto Sans CJK SC', 'Noto Color Emoji', sans-serif";

export class CanvasSurface {
  constructor(context, width, height, scale) {
    Object.assign(this, { c: context, width, height });
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
  }
  rect(x, y, w, h, color, alpha = 1) {
    this.c.globalAlpha = alpha;
    this.c.fillStyle = color;
    this.c.fillRect(x, y, w, h);
    this.c.globalAlpha = 1;
  }
  frame(x, y, w, h, color, thick = 1) {
    this.c.strokeStyle = color;
    this.c.lineWidth = thick;
    this.c.strokeRect(x, y, w, h);
  }
  curve(x, y, x2, y2, color, alpha, thick) {
    const middle = (x + x2) / 2;
    this.c.globalAlpha = alpha;
    this.c.strokeStyle = color;
    this.c.lineWidth = thick;
    this.c.beginPath();
    this.c.moveTo(x, y);
    this.c.bezierCurveTo(middle, y, middle, y2, x2, y2);
    this.c.stroke();
    this.c.globalAlpha = 1;
  }
  text(text, x, y, color, { align = "left", size = 13, bold = false, turn = 0 } = {}) {
    const c = this.c;
    c.save();
    c.fillStyle = color;
    c.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    c.textAlign = align;
    c.textBaseline = "middle";
    c.translate(x, y);
    if (turn) c.rotate(turn * Math.PI / 180);
    c.fillText(text, 0, 0);
    c.restore();
  }
  clip(x, y, w, h, draw) {
    this.c.save();
    this.c.beginPath();
    this.c.rect(x, y, w, h);
    this.c.clip();
    draw();
    this.c.restore();
  }
}

const escaped = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const short = (x) => String(Math.round(x * 100) / 100);

export class SvgSurface {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [], clips: 0 });
  }
  rect(x, y, w, h, color, alpha = 1) {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" ` +
      `height="${short(h)}" fill="${color}" fill-opacity="${alpha.toFixed(3)}"/>`);
  }
  frame(x, y, w, h, color, thick = 1) {
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" ` +
      `height="${short(h)}" fill="none" stroke="${color}" stroke-width="${thick}"/>`);
  }
  curve(x, y, x2, y2, color, alpha, thick) {
    const middle = short((x + x2) / 2);
    this.parts.push(`<path d="M${short(x)} ${short(y)}C${middle} ${short(y)} ${middle} ` +
      `${short(y2)} ${short(x2)} ${short(y2)}" fill="none" stroke="${color}" ` +
      `stroke-opacity="${alpha.toFixed(3)}" stroke-width="${short(thick)}"/>`);
  }
  text(text, x, y, color, { align = "left", size = 13, bold = false, turn = 0 } = {}) {
    const anchor = { left: "start", right: "end", center: "middle" }[align];
    const turned = turn ? ` transform="rotate(${turn} ${short(x)} ${short(y)})"` : "";
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" fill="${color}" font-size="${size}" ` +
      `text-anchor="${anchor}" dominant-baseline="central"${bold ? ' font-weight="600"' : ""}` +
      `${turned}>${escaped(text)}</text>`);
  }
  clip(x, y, w, h, draw) {
    const name = `clip${this.clips++}`;
    this.parts.push(`<clipPath id="${name}"><rect x="${short(x)}" y="${short(y)}" ` +
      `width="${short(w)}" height="${short(h)}"/></clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }
  file(title) {
    const size = `width="${short(this.width)}" height="${short(this.height)}"`;
    return `<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" ` +
      `${size} viewBox="0 0 ${short(this.width)} ${short(this.height)}" ` +
      `font-family="${escaped(FONT)}" role="img"><title>${escaped(title)}</title>\n` +
      `${this.parts.join("\n")}\n</svg>\n`;
  }
}
