// Texts whose contrast with their background is too low: [ratio, needed, text] each.
(() => {
  const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
  const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || (c.length === 4 && c[3] === 1)) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('i.n') || e.tagName === 'title' || e.tagName === 'desc') continue;
    const style = getComputedStyle(e), svg = e.closest('svg');
    if (svg && e.classList.contains('in')) continue; // stands on a bar, not on the page
    const a = light(parse(svg ? style.fill : style.color)), b = light(behind(svg ? svg.parentElement : e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const px = parseFloat(style.fontSize), large = px >= 24 || (px >= 18.66 && +style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push([ratio.toFixed(2), large ? 3 : 4.5, e.textContent.trim().slice(0, 40)]);
  }
  return found.slice(0, 20);
})()
