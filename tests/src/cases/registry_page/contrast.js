(() => {
  // By WCAG 2.2: relative luminance, and the ratio of two.
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const linear = (part) => { const c = part / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
      if (colour[3] !== 0) throw new Error("half transparent");
    }
    throw new Error("no background");
  };
  let least = 100, text = "";
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data).join("").trim();
    const found = own || (e.tagName === "INPUT" && e.value);
    if (!found || e.tagName === "SCRIPT") continue;
    const contrast = ratio(numbers(getComputedStyle(e).color), behind(e));
    if (contrast < least) [least, text] = [contrast, found];
  }
  return { least, text, background: getComputedStyle(document.body).backgroundColor };
})()
